"""Send a mail by SMTP, over TLS, to a server whose address was checked: ten seconds in all, and
64 KiB of what the server says.

Not here: where it may go (`pinned_connections`), or what the mail says (`channel_sender`).
"""

from __future__ import annotations

import contextlib
import smtplib
import socket
import ssl
from email.message import EmailMessage
from typing import Final

from app.adapters.outgoing.pinned_connections import (
    ANSWER_BYTES_MAX,
    CALL_SECONDS,
    CallLimit,
    PinnedConnections,
    socket_of,
)
from app.domain.notifications.channel_targets import MailSecurity, MailTarget
from app.ports.people.message_sender import MessageNotSent

_READY: Final = 220
_CODES: Final = range(200, 600)
_TOLD_MAX: Final = 120


class _Conversation(smtplib.SMTP):
    """One with a bound: `SMTP` gathers the lines of a reply for as long as they come."""

    def __init__(self, domain: str, connection: socket.socket, host: str) -> None:
        """domain: that we name ourselves by."""
        # Without a host it connects nowhere itself, and looks up no name.
        super().__init__(local_hostname=domain)
        self._called = host
        self.read_from(connection)

    def read_from(self, connection: socket.socket) -> None:
        """Go on over this connection; what an earlier one has sent and nobody read is dropped."""
        self.sock = connection
        self.file = _BoundedReplies(connection, self._called)


class _BoundedReplies:
    """What `SMTP` reads lines from."""

    def __init__(self, connection: socket.socket, host: str) -> None:
        self._file = connection.makefile("rb")
        self._left = ANSWER_BYTES_MAX
        self._host = host

    def readline(self, size: int) -> bytes:
        """The next line, or so many bytes of it. Raises MessageNotSent above the bound."""
        line = self._file.readline(size)
        self._left -= len(line)
        if self._left < 0:
            raise MessageNotSent(f"{self._host} answers with more than 64 KiB.")
        return line

    def close(self) -> None:
        """Read no more."""
        self._file.close()


class MailClient:
    """Thread-safe: each mail has a connection of its own."""

    def __init__(
        self, connections: PinnedConnections, tls: ssl.SSLContext, seconds: float = CALL_SECONDS
    ) -> None:
        """seconds: of a whole call."""
        self._connections = connections
        self._tls = tls
        self._seconds = seconds

    def send(self, target: MailTarget, mail: EmailMessage) -> str:
        """Hand a mail to the server; whom it refused, "" for nobody. Raises MessageNotSent."""
        with CallLimit(self._seconds) as limit:
            try:
                return self._send(target, mail, limit)
            except MessageNotSent:
                raise
            except smtplib.SMTPAuthenticationError as error:
                raise MessageNotSent(
                    f"{target.host} does not take the username and password ({error.smtp_code})."
                ) from None
            except smtplib.SMTPNotSupportedError as error:
                raise MessageNotSent(f"{target.host}: {error}") from None
            except smtplib.SMTPRecipientsRefused as error:
                raise MessageNotSent(
                    f"{target.host} refuses every recipient: {_refused(error.recipients)}."
                ) from None
            except smtplib.SMTPResponseException as error:
                raise MessageNotSent(f"{target.host} {_answers(error)}.") from None
            except ssl.SSLCertVerificationError as error:
                raise MessageNotSent(
                    f"{target.host} shows a certificate that is not trusted "
                    f"({error.verify_message})."
                ) from error
            except TimeoutError as error:
                raise limit.over() from error
            except (smtplib.SMTPException, OSError, ValueError) as error:
                limit.left()
                raise MessageNotSent(f"{target.host} broke the connection off.") from error

    def _send(self, target: MailTarget, mail: EmailMessage, limit: CallLimit) -> str:
        is_encrypted = target.security is not MailSecurity.NONE
        stream = self._connections.stream(target.host, target.port, limit, encrypted=is_encrypted)
        with contextlib.closing(stream):
            connection = socket_of(stream)
            connection.settimeout(limit.left())
            if target.security is MailSecurity.TLS:
                connection = self._tls.wrap_socket(connection, server_hostname=target.host)
            domain = target.sender.partition("@")[2]
            with contextlib.closing(_Conversation(domain, connection, target.host)) as server:
                return _refused(self._converse(target, mail, server))

    def _converse(
        self, target: MailTarget, mail: EmailMessage, server: _Conversation
    ) -> dict[str, tuple[int, bytes]]:
        """Whom the server refused."""
        code, text = server.getreply()
        if code != _READY:
            raise smtplib.SMTPResponseException(code, text)
        server.ehlo()
        if target.security is MailSecurity.STARTTLS:
            self._start_tls(target, server)
        if target.username is not None and target.password is not None:
            server.login(target.username, target.password)
        refused = server.send_message(mail, target.sender, list(target.recipients))
        # The mail is taken, whatever comes after that.
        with contextlib.suppress(smtplib.SMTPException, OSError, MessageNotSent):
            server.quit()
        return refused

    def _start_tls(self, target: MailTarget, server: _Conversation) -> None:
        """As `SMTP.starttls`, which would ask for the certificate of no host."""
        if not server.has_extn("starttls"):
            raise MessageNotSent(
                f"{target.host} offers no STARTTLS at port {target.port}: nothing is sent in "
                "clear. Try `tls`, which is usual at port 465."
            )
        code, text = server.docmd("STARTTLS")
        if code != _READY:
            raise smtplib.SMTPResponseException(code, text)
        assert server.sock is not None
        encrypted = self._tls.wrap_socket(server.sock, server_hostname=target.host)
        # What came in clear after the server's word is dropped unread: it may be anybody's.
        server.read_from(encrypted)
        server.ehlo()


def _refused(recipients: dict[str, tuple[int, bytes]]) -> str:
    return ", ".join(f"{name} ({code})" for name, (code, _) in sorted(recipients.items()))


def _answers(error: smtplib.SMTPResponseException) -> str:
    """Nothing is repeated of what is no mail server: it may be any program of the operator's."""
    if error.smtp_code not in _CODES:
        return "does not answer as a mail server does"
    return f"answers {error.smtp_code}{_told(error.smtp_error)}"


def _told(text: bytes | str) -> str:
    written = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    plain = " ".join("".join(c if c.isprintable() else " " for c in written).split())
    return f" ({plain[:_TOLD_MAX]})" if plain else ""
