"""Mail against a real SMTP server, and against some that mean harm."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import EmailMessage
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

from app.adapters.outgoing.mail_client import MailClient
from app.adapters.outgoing.pinned_connections import PinnedConnections
from app.domain.notifications.channel_targets import MailSecurity, MailTarget
from app.ports.people.message_sender import MessageNotSent
from tests.support.servers.free_port import free_port
from tests.support.servers.tls_server import Authority

HOST = "smtp.test"
LOOPBACK = (ip_network("127.0.0.0/8"),)
SECONDS = 1.0


@dataclass
class Mailbox:
    """A handler of aiosmtpd: what it took. Nobody is at gone@example.com."""

    taken: list[tuple[list[str], bytes]] = field(default_factory=list)

    async def handle_RCPT(  # noqa: N802
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if address.startswith("gone@"):
            return "550 5.1.1 no such mailbox"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(  # noqa: N802
        self, server: SMTP, session: Session, envelope: Envelope
    ) -> str:
        assert isinstance(envelope.content, bytes)
        self.taken.append((list(envelope.rcpt_tos), envelope.content))
        return "250 taken"


def authenticate(
    server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: Any
) -> AuthResult:
    good = isinstance(data, LoginPassword) and data.password == b"hunter2"
    return AuthResult(success=good, handled=False)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def mailbox() -> Mailbox:
    return Mailbox()


@pytest.fixture(scope="module")
def ports(
    authority: Authority, mailbox: Mailbox, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, int]]:
    """A server that asks for a password after STARTTLS, one with TLS at once, one without any."""
    folder: Path = tmp_path_factory.mktemp("mail")
    context = authority.server(folder, HOST, 1)
    kinds: dict[str, dict[str, Any]] = {
        "starttls": {
            "tls_context": context, "require_starttls": True, "auth_required": True,
            "authenticator": authenticate,
        },
        "tls": {"ssl_context": context},
        "plain": {},
    }  # fmt: skip
    servers = {
        name: Controller(mailbox, hostname="127.0.0.1", port=free_port(), **options)
        for name, options in kinds.items()
    }
    for server in servers.values():
        server.start()
    yield {name: server.port for name, server in servers.items()}
    for server in servers.values():
        server.stop()


def client(authority: Authority) -> MailClient:
    connections = PinnedConnections(LOOPBACK, lambda host, port: ["127.0.0.1"])
    return MailClient(connections, authority.context, SECONDS)


def target(port: int, security: MailSecurity, **fields: Any) -> MailTarget:
    return MailTarget(
        fields.get("host", HOST),
        port,
        security,
        "lowtide@example.com",
        fields.get("recipients", ("ops@example.com",)),
        fields.get("username"),
        fields.get("password"),
    )


def mail() -> EmailMessage:
    made = EmailMessage()
    made["Subject"] = "[Lowtide] Job bért has failed"
    made["From"] = "lowtide@example.com"
    made["To"] = "ops@example.com"
    made.set_content("Cost so far: $1.23\n.\nUmlaut: ü\n")
    return made


def refusal(authority: Authority, aim: MailTarget) -> str:
    with pytest.raises(MessageNotSent) as refused:
        client(authority).send(aim, mail())
    return str(refused.value)


def test_a_mail_arrives_after_starttls_and_a_password(
    authority: Authority, ports: dict[str, int], mailbox: Mailbox
):
    aim = target(ports["starttls"], MailSecurity.STARTTLS, username="lowtide", password="hunter2")
    assert client(authority).send(aim, mail()) == ""
    recipients, content = mailbox.taken[-1]
    assert recipients == ["ops@example.com"]
    assert b"Job =?utf-8?q?b=C3=A9rt?= has failed" in content
    assert b"hunter2" not in content


def test_a_mail_arrives_with_tls_from_the_first_byte_and_partly_where_some_are_refused(
    authority: Authority, ports: dict[str, int], mailbox: Mailbox
):
    both = ("ops@example.com", "gone@example.com")
    aim = target(ports["tls"], MailSecurity.TLS, recipients=both)
    assert client(authority).send(aim, mail()) == "gone@example.com (550)"
    assert mailbox.taken[-1][0] == ["ops@example.com"]


def test_without_tls_a_mail_goes_to_loopback_alone(authority: Authority, ports: dict[str, int]):
    aim = target(ports["plain"], MailSecurity.NONE)
    assert client(authority).send(aim, mail()) == ""
    elsewhere = PinnedConnections((ip_network("0.0.0.0/0"),), lambda host, port: ["10.0.0.7"])
    with pytest.raises(MessageNotSent, match="without encryption"):
        MailClient(elsewhere, authority.context, SECONDS).send(aim, mail())


def test_what_a_server_refuses_is_told(authority: Authority, ports: dict[str, int]):
    wrong = target(ports["starttls"], MailSecurity.STARTTLS, username="lowtide", password="x")
    assert refusal(authority, wrong) == f"{HOST} does not take the username and password (535)."
    nobody = target(ports["tls"], MailSecurity.TLS, recipients=("gone@example.com",))
    assert refusal(authority, nobody) == (
        f"{HOST} refuses every recipient: gone@example.com (550)."
    )
    plain = target(ports["plain"], MailSecurity.STARTTLS)
    assert f"{HOST} offers no STARTTLS" in refusal(authority, plain)
    unsigned = target(ports["starttls"], MailSecurity.STARTTLS)
    assert f"{HOST} answers 530 (5.7.0 Authentication required)." == refusal(authority, unsigned)


@pytest.mark.parametrize(("kind", "security"), [("tls", "tls"), ("starttls", "starttls")])
def test_a_certificate_of_another_host_is_refused(
    authority: Authority, ports: dict[str, int], kind: str, security: str
):
    aim = target(
        ports[kind], MailSecurity(security), host="other.test", username="a", password="hunter2"
    )
    assert "other.test shows a certificate that is not trusted" in refusal(authority, aim)


@contextmanager
def speaking(say: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server that says this to who connects, until the end of the block."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            try:
                connection, _ = listening.accept()
                with connection:
                    say(connection)
            except OSError:
                pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        thread.join(10)


def drip(connection: socket.socket) -> None:
    for one in b"220 " + b"x" * 1_000:
        connection.sendall(bytes([one]))
        time.sleep(0.05)


def flood(connection: socket.socket) -> None:
    """One reply of endless lines, as fast as they are taken."""
    while True:
        connection.sendall(b"220-" + b"x" * 1_000 + b"\r\n")


def injecting(connection: socket.socket) -> None:
    """Puts a word of its own into what is read as encrypted."""
    connection.sendall(b"220 mail\r\n")
    connection.recv(1_000)
    connection.sendall(b"250-mail\r\n250 STARTTLS\r\n")
    connection.recv(1_000)
    connection.sendall(b"220 go\r\n250-mail\r\n250 AUTH PLAIN\r\n")
    connection.recv(1_000)


@pytest.mark.parametrize(
    ("say", "told"),
    [
        (drip, "It did not answer in full within 1s."),
        (flood, f"{HOST} answers with more than 64 KiB."),
        (
            lambda connection: connection.sendall(b"SSH-2.0-OpenSSH_9.6\r\n"),
            f"{HOST} does not answer as a mail server does.",
        ),
        (
            lambda connection: connection.sendall(b"554 go away\r\n"),
            f"{HOST} answers 554 (go away).",
        ),
        (lambda connection: None, f"{HOST} broke the connection off."),
        (injecting, f"{HOST} broke the connection off."),
    ],
    ids=["drip", "flood", "other", "refusal", "cut", "injection"],
)
def test_a_server_that_means_harm_ends_in_time(
    authority: Authority, say: Callable[[socket.socket], None], told: str
):
    begun = time.monotonic()
    with speaking(say) as port:
        assert refusal(authority, target(port, MailSecurity.STARTTLS)) == told
    assert time.monotonic() - begun < 8
