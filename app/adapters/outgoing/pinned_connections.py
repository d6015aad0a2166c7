"""Connections to a host that a person names: every address is checked, and the checked one called.

A name is resolved once for each call, so that it cannot lead elsewhere between check and call. Not
here: which addresses may be called (`app.domain.notifications.outgoing_addresses`).
"""

from __future__ import annotations

import contextlib
import queue
import socket
import ssl
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from ipaddress import ip_address
from types import TracebackType
from typing import Final

import httpcore

from app.domain.deployment.setting_lists import Network
from app.domain.notifications.outgoing_addresses import (
    Address,
    kind_of_address,
    may_be_called,
    may_be_called_in_clear,
)
from app.domain.units.durations import measured_duration
from app.ports.people.message_sender import MessageNotSent

CALL_SECONDS: Final = 10.0
ANSWER_BYTES_MAX: Final = 64 << 10
"""Of what a host answers in one call, this much is read."""
_CONNECT_SECONDS: Final = 5.0
_ADDRESSES_TRIED_MAX: Final = 3
_LOOKUPS_AT_ONCE: Final = 8

Resolve = Callable[[str, int], Sequence[str]]
"""The IP addresses of a host. Raises OSError."""


def system_addresses(host: str, port: int) -> list[str]:
    """The addresses that the system's resolver gives, in its order."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(one[4][0]) for one in found))


class CallLimit:
    """Ends the connections of one call once its time is over, whatever they wait for.

    The time limit of a socket begins anew with every byte; this one does not.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until = time.monotonic() + seconds
        self._watched: list[socket.socket] = []
        self._is_over = False
        self._lock = threading.Lock()
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True

    def __enter__(self) -> CallLimit:
        self._timer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        with self._lock:
            for one in self._watched:
                one.close()
            self._watched.clear()

    def left(self) -> float:
        """Seconds that are left. Raises MessageNotSent where there are none."""
        left = self._until - time.monotonic()
        if left <= 0:
            raise self.over()
        return left

    def over(self) -> MessageNotSent:
        """What is told of a call whose time is over."""
        allowed = measured_duration(self._seconds)
        return MessageNotSent(f"It did not answer in full within {allowed}.")

    def watch(self, connection: socket.socket) -> None:
        """End this connection, too. The socket may be wrapped by TLS afterwards."""
        with self._lock:
            # A descriptor of its own: that of the caller may be another connection's by then.
            self._watched.append(connection.dup())
            # One that came up at the last moment has missed the end.
            if self._is_over:
                self._shut()

    def _end(self) -> None:
        with self._lock:
            self._is_over = True
            self._shut()

    def _shut(self) -> None:
        for one in self._watched:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


class PinnedConnections:
    """Opens connections to checked addresses. Thread-safe."""

    def __init__(self, allowed: Collection[Network], resolve: Resolve = system_addresses) -> None:
        """allowed: networks that may be called besides the public ones."""
        self._allowed = allowed
        self._resolve = resolve
        self._lookups = threading.BoundedSemaphore(_LOOKUPS_AT_ONCE)

    def stream(
        self, host: str, port: int, limit: CallLimit, *, encrypted: bool
    ) -> httpcore.NetworkStream:
        """A connection, without TLS as yet, to one of the host's addresses.

        encrypted: whether TLS follows at once. Raises MessageNotSent, also where any of the
        addresses may not be called.
        """
        addresses = self._checked(host, port, limit, encrypted=encrypted)
        for address in addresses[:_ADDRESSES_TRIED_MAX]:
            seconds = min(limit.left(), _CONNECT_SECONDS)
            try:
                stream = httpcore.SyncBackend().connect_tcp(str(address), port, seconds)
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                continue
            limit.watch(socket_of(stream))
            return stream
        raise MessageNotSent(f"{host} takes no connection at port {port}.")

    def _checked(self, host: str, port: int, limit: CallLimit, *, encrypted: bool) -> list[Address]:
        found = [ip_address(one) for one in self._looked_up(host, port, limit)]
        if not found:
            raise MessageNotSent(f"{host} has no address.")
        for address in found:
            if not may_be_called(address, self._allowed):
                kind = kind_of_address(address)
                raise MessageNotSent(
                    f"{host} leads to {address}, which is {kind}: only public addresses are "
                    "called, and networks of LOWTIDE_NOTIFICATION_NETWORKS."
                )
            if not encrypted and not may_be_called_in_clear(address, self._allowed):
                raise MessageNotSent(
                    f"{host} would be called without encryption: that is for loopback alone, "
                    "where LOWTIDE_NOTIFICATION_NETWORKS names it."
                )
        return found

    def _looked_up(self, host: str, port: int, limit: CallLimit) -> Sequence[str]:
        """A resolver has no time limit of ours, so it is asked in a thread that may be left."""
        answers: queue.SimpleQueue[Sequence[str] | None] = queue.SimpleQueue()

        def ask() -> None:
            try:
                answers.put(self._resolve(host, port))
            except (OSError, ValueError):
                answers.put(None)
            finally:
                self._lookups.release()

        if not self._lookups.acquire(timeout=limit.left()):
            raise MessageNotSent("Too many names are being looked up, and none is answered.")
        threading.Thread(target=ask, daemon=True).start()
        try:
            found = answers.get(timeout=limit.left())
        except queue.Empty:
            raise MessageNotSent(f"The address of {host} was not found in time.") from None
        if found is None:
            raise MessageNotSent(f"{host} has no address: no such name is known.")
        return found


class PinnedBackend(httpcore.NetworkBackend):
    """Of one call by httpcore: it connects where `PinnedConnections` says, for as long as it may.

    httpcore itself then asks for TLS and for the host by its name.
    """

    def __init__(
        self, connections: PinnedConnections, limit: CallLimit, *, encrypted: bool
    ) -> None:
        self._connections = connections
        self._limit = limit
        self._encrypted = encrypted

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        """The connection. Raises MessageNotSent."""
        stream = self._connections.stream(host, port, self._limit, encrypted=self._encrypted)
        return _BoundedStream(stream)


class AnswerTooLong(httpcore.ReadError):
    """As much was read of an answer as may be."""


class _BoundedStream(httpcore.NetworkStream):
    """A connection of which so much is read: heads without end count like bodies."""

    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream
        self._left = ANSWER_BYTES_MAX

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """What has come. Raises AnswerTooLong, and what the connection raises."""
        if self._left <= 0:
            raise AnswerTooLong
        content = self._stream.read(min(max_bytes, self._left), timeout)
        self._left -= len(content)
        return content

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send all of it."""
        self._stream.write(buffer, timeout)

    def close(self) -> None:
        """End the connection."""
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        """The connection with TLS, bounded as well."""
        return _BoundedStream(self._stream.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> object:
        """What the connection knows of itself."""
        return self._stream.get_extra_info(info)


def socket_of(stream: httpcore.NetworkStream) -> socket.socket:
    """The socket under a connection."""
    found = stream.get_extra_info("socket")
    assert isinstance(found, socket.socket)
    return found
