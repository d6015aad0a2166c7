"""Readers take turns: an ASGI layer that lets so many GET requests work at a time, in their order.

Without it two hundred readers take every thread and connection, and whoever waits longest for one
is refused. What agents ask, and every command, is not held up here. Not here: the queue (`turns`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.serving.turns import Turns

ErrorResponse = Callable[[Request, Exception], Awaitable[Response | None]]

# Fewer than there are threads: agents and commands find one.
READERS_AT_ONCE = 12
_PROBES_AT_ONCE = 2
_WAITING_MAX = 2_000
_SECONDS_MAX = 60.0
# They look at this process alone, and are never held up.
_FREE = frozenset({"/healthz", "/openapi.json"})
_PROBES = frozenset({"/readyz", "/metrics"})


class ReaderTurns:
    """A turn lasts until the answer begins: by then the database has been read."""

    def __init__(self, app: ASGIApp, explain: ErrorResponse) -> None:
        self._app = app
        self._explain = explain
        self._readers = Turns(READERS_AT_ONCE, _WAITING_MAX, "readers", seconds_max=_SECONDS_MAX)
        # A health check has its own, so that no crowd of readers makes it late.
        self._probes = Turns(_PROBES_AT_ONCE, _WAITING_MAX, "probes", seconds_max=_SECONDS_MAX)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, when its turn has come."""
        turns = self._turns_for(scope)
        if turns is None:
            await self._app(scope, receive, send)
            return
        try:
            await turns.wait()
        except HTTPException as error:
            busy = await self._explain(Request(scope), error)
            assert busy is not None
            await busy(scope, receive, send)
            return
        holds = True

        async def noted(message: Message) -> None:
            nonlocal holds
            if holds:
                holds = False
                turns.give_back()
            await send(message)

        try:
            await self._app(scope, receive, noted)
        finally:
            if holds:
                turns.give_back()

    def _turns_for(self, scope: Scope) -> Turns | None:
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
            return None
        path: str = scope["path"]
        if path in _FREE or path.startswith(("/agent/", "/static/")):
            return None
        return self._probes if path in _PROBES else self._readers
