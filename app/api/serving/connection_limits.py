"""Time limits on slow clients: for the head of a request, its body, and an idle connection.

Lives here: the limits, and uvicorn's protocol with those for heads and idle connections, which no
ASGI layer sees. Not here: the limit for bodies (`request_limits`), which ends with the body: an
answer may take as long as it wants, and so may a client that follows a log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.adapters.connection_variables import ConnectionVariables
from app.api.serving.error_responses import problem
from app.domain.units.durations import measured_duration

_STATE_KEY: Final = "connection_limits"
_HEAD_BYTES_MAX: Final = 128 << 10


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Durations are seconds; as the settings of the same names describe them."""

    head_seconds: float = 20.0
    body_seconds: float = 20.0
    body_bytes_per_second: int = 8_192
    keep_alive_seconds: float = 5.0

    @classmethod
    def of(cls, settings: ConnectionVariables) -> ConnectionLimits:
        """The limits as set."""
        return cls(
            settings.request_head_seconds,
            settings.request_body_seconds,
            settings.request_body_bytes_per_second,
            settings.keep_alive_seconds,
        )

    def as_state(self) -> dict[str, ConnectionLimits]:
        """What the app's lifespan hands to the server: every connection and request gets it."""
        return {_STATE_KEY: self}


def limits_in(state: Mapping[str, Any]) -> ConnectionLimits:
    """The limits in the state of a server or request; the usual ones where there are none."""
    found: ConnectionLimits | None = state.get(_STATE_KEY)
    return _USUAL if found is None else found


def limits_of_request(scope: Scope) -> ConnectionLimits:
    """The limits of the server that a request came to."""
    return limits_in(scope.get("state") or {})


_USUAL: Final = ConnectionLimits()


class LimitedHttp(HttpToolsProtocol):
    """uvicorn's protocol, which closes connections that are slow to say what they want."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        limits = limits_in(self.app_state)
        self.timeout_keep_alive = limits.keep_alive_seconds  # type: ignore[assignment]
        self._head_seconds = limits.head_seconds
        self._head_timer: asyncio.TimerHandle | None = None
        self._in_head = False
        self._head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client may not connect and stay silent."""
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is waited for any more."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes that belong to no request that is being answered begin the wait for a head."""
        super().data_received(data)
        if self.transport.is_closing() or not self._is_idle():
            return
        self._await_head()
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > _HEAD_BYTES_MAX:
                self._refuse(431, "The head of the request is larger than 128 KiB; send less.")

    def on_message_begin(self) -> None:
        """The first byte of a head."""
        self._in_head, self._head_bytes = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """A whole head: what follows has limits of its own."""
        self._in_head = False
        self._stop_waiting()
        super().on_headers_complete()

    def _is_idle(self) -> bool:
        """Whether no request is being answered: what comes now is a head, or nobody reads it."""
        return self.cycle is None or self.cycle.response_complete

    def _await_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self._head_seconds, self._head_is_late)

    def _stop_waiting(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_is_late(self) -> None:
        self._head_timer = None
        if self.transport.is_closing():
            return
        if self._in_head:
            limit = measured_duration(self._head_seconds)
            self._refuse(408, f"The head of the request did not come within {limit}.")
        else:
            # Nothing was asked, so nothing is answered.
            self.transport.close()

    def _refuse(self, status: int, detail: str) -> None:
        """Answer what cannot become a request, and close."""
        self._stop_waiting()
        answer = problem(status, detail, headers={"Connection": "close"})
        head = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}".encode()]
        head += [name + b": " + value for name, value in answer.raw_headers]
        self.transport.write(b"\r\n".join([*head, b"", bytes(answer.body)]))
        self.transport.close()
