"""POST to a webhook: no redirect, no proxy, ten seconds in all, and 64 KiB of the answer.

Not here: what is posted (`channel_sender`), or where it may go (`pinned_connections`).
"""

from __future__ import annotations

import contextlib
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import httpcore

from app.adapters.outgoing.pinned_connections import (
    CALL_SECONDS,
    AnswerTooLong,
    CallLimit,
    PinnedBackend,
    PinnedConnections,
)
from app.domain.notifications.channel_targets import WebAddress
from app.ports.people.message_sender import MessageNotSent

_WORD: Final = re.compile(rb"[a-z][a-z_]{1,60}")
"""What Slack says of a refusal, as `channel_is_archived`. Nothing else of an answer is kept: it may
repeat the address, which is a secret.
"""
_BROKEN_OFF: Final = (
    httpcore.NetworkError,
    httpcore.TimeoutException,
    httpcore.ProtocolError,
    OSError,
)
_REDIRECTS: Final = range(300, 400)
_SUCCESSES: Final = range(200, 300)


@dataclass(frozen=True)
class WebhookAnswer:
    """What a webhook answered. word: the one word of its body, "" where it is anything else."""

    status: int
    word: str


class WebhookClient:
    """Thread-safe: each call has a connection of its own."""

    def __init__(
        self, connections: PinnedConnections, tls: ssl.SSLContext, seconds: float = CALL_SECONDS
    ) -> None:
        """seconds: of a whole call."""
        self._connections = connections
        self._tls = tls
        self._seconds = seconds

    def post(self, address: WebAddress, body: bytes, headers: Mapping[str, str]) -> WebhookAnswer:
        """Post once. Raises MessageNotSent unless the answer is a success."""
        with CallLimit(self._seconds) as limit:
            try:
                answer = self._answer(address, body, headers, limit)
            except MessageNotSent:
                raise
            except httpcore.TimeoutException as error:
                raise limit.over() from error
            except AnswerTooLong as error:
                raise MessageNotSent(f"{address.host} answers with more than 64 KiB.") from error
            except httpcore.NetworkError as error:
                limit.left()
                raise MessageNotSent(f"{address.host} {_failure(error)}.") from error
            except (httpcore.ProtocolError, httpcore.UnsupportedProtocol) as error:
                limit.left()
                raise MessageNotSent(f"{address.host} does not answer as HTTP does.") from error
            except OSError as error:
                limit.left()
                raise MessageNotSent(f"{address.host} broke the connection off.") from error
        if answer.status in _SUCCESSES:
            return answer
        if answer.status in _REDIRECTS:
            raise MessageNotSent(
                f"{address.host} answers {answer.status}, a redirect, which is not followed: give "
                "the channel the address that it leads to."
            )
        said = f" ({answer.word})" if answer.word else ""
        raise MessageNotSent(f"{address.host} answers {answer.status}{said}.")

    def _answer(
        self, address: WebAddress, body: bytes, headers: Mapping[str, str], limit: CallLimit
    ) -> WebhookAnswer:
        backend = PinnedBackend(self._connections, limit, encrypted=address.encrypted)
        left = limit.left()
        url = httpcore.URL(
            scheme=b"https" if address.encrypted else b"http",
            host=address.host.encode("ascii"),
            port=address.port,
            target=address.target.encode("ascii"),
        )
        sent = {"Host": _host_header(address), "User-Agent": "Lowtide", **headers}
        timeouts = dict.fromkeys(("connect", "read", "write", "pool"), left)
        with (
            httpcore.ConnectionPool(self._tls, network_backend=backend, max_connections=1) as pool,
            pool.stream(
                "POST",
                url,
                headers=list(sent.items()),
                content=body,
                extensions={"timeout": timeouts},
            ) as answer,
        ):
            content = b""
            # The status is the answer: what follows may hang, break off or have no end.
            with contextlib.suppress(*_BROKEN_OFF):
                for part in answer.iter_stream():
                    content += part
            found = _WORD.fullmatch(content.strip())
            return WebhookAnswer(answer.status, "" if found is None else found[0].decode())


def _host_header(address: WebAddress) -> str:
    host = f"[{address.host}]" if ":" in address.host else address.host
    usual = 443 if address.encrypted else 80
    return host if address.port == usual else f"{host}:{address.port}"


def _failure(error: BaseException) -> str:
    """What a host did, looked up below httpcore's error."""
    below: BaseException | None = error
    for _ in range(10):
        if isinstance(below, ssl.SSLCertVerificationError):
            return f"shows a certificate that is not trusted ({below.verify_message})"
        if isinstance(below, ssl.SSLError):
            return "does not speak TLS as it must"
        below = None if below is None else below.__cause__ or below.__context__
    return "broke the connection off"
