"""The two things that the api asks of Redis, in its own protocol: push onto a list, and ping.

A client library would be 6 MB in every api process, and Celery's sender 7 MB more and nine times
the work for each ring. Not here: what is pushed (`celery_wakeups`).
"""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit

_DEFAULT_PORT: Final = 6379
_LINE_BYTES_MAX: Final = 4096


class RedisAway(Exception):
    """Redis cannot be reached, or refuses; the text says which."""


@dataclass(frozen=True)
class RedisAddress:
    """Where Redis listens (`path`: a Unix socket) and how to sign in."""

    host: str
    port: int
    path: str | None
    tls: ssl.SSLContext | None
    user: str | None
    password: str | None
    database: int

    @staticmethod
    def parse(url: str) -> RedisAddress:
        """The address in `redis://`, `rediss://` or `unix://` form, as redis-py reads it."""
        parts = urlsplit(url)
        options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        database = parts.path.strip("/") if parts.scheme != "unix" else ""
        return RedisAddress(
            host=parts.hostname or "localhost",
            port=parts.port or _DEFAULT_PORT,
            path=unquote(parts.path) if parts.scheme == "unix" else None,
            tls=_tls(options) if parts.scheme == "rediss" else None,
            user=unquote(parts.username) if parts.username else None,
            password=unquote(parts.password) if parts.password else None,
            database=int(options.get("db") or database or 0),
        )


class RedisList:
    """One connection, opened when needed and again after a failure. For one thread at a time."""

    def __init__(self, url: str, timeout_seconds: float) -> None:
        self._address = RedisAddress.parse(url)
        self._timeout_seconds = timeout_seconds
        self._link: socket.socket | None = None

    def push(self, key: str, content: bytes) -> None:
        """Put `content` at the head of the list. Raises RedisAway; it may then be there or not."""
        self._command(b"LPUSH", key.encode(), content)

    def ping(self) -> None:
        """Return when Redis answers. Raises RedisAway."""
        self._command(b"PING")

    def close(self) -> None:
        """Hang up; the next command connects again."""
        if self._link is not None:
            self._link.close()
            self._link = None

    def _command(self, *words: bytes) -> None:
        # A connection that was idle may have been closed by the other side: then once more.
        was_open = self._link is not None
        try:
            self._ask(self._connected(), *words)
        except OSError as error:
            self.close()
            if not was_open:
                raise RedisAway(f"Redis does not answer: {error}") from error
            try:
                self._ask(self._connected(), *words)
            except OSError as second:
                self.close()
                raise RedisAway(f"Redis does not answer: {second}") from second

    def _connected(self) -> socket.socket:
        if self._link is None:
            address = self._address
            link = self._open()
            try:
                if address.password is not None:
                    names = [] if address.user is None else [address.user.encode()]
                    self._ask(link, b"AUTH", *names, address.password.encode())
                if address.database:
                    self._ask(link, b"SELECT", str(address.database).encode())
            except BaseException:
                link.close()
                raise
            self._link = link
        return self._link

    def _open(self) -> socket.socket:
        address = self._address
        if address.path is not None:
            link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            link.settimeout(self._timeout_seconds)
            link.connect(address.path)
            return link
        link = socket.create_connection((address.host, address.port), self._timeout_seconds)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return address.tls.wrap_socket(link, server_hostname=address.host) if address.tls else link

    def _ask(self, link: socket.socket, *words: bytes) -> None:
        """One command and its one-line answer (RESP: simple string, number or error)."""
        sent = b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)
        link.sendall(b"*%d\r\n%b" % (len(words), sent))
        answer = b""
        while not answer.endswith(b"\r\n"):
            part = link.recv(_LINE_BYTES_MAX)
            if not part or len(answer) > _LINE_BYTES_MAX:
                raise ConnectionError("the connection was closed")
            answer += part
        if answer[:1] not in (b"+", b":"):
            self.close()
            raise RedisAway(f"Redis refuses: {answer[1:].decode('utf-8', 'replace').strip()}")


def _tls(options: dict[str, str]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=options.get("ssl_ca_certs"))
    if options.get("ssl_cert_reqs", "required").lower().removeprefix("cert_") == "none":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
