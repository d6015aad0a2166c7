"""Both of the cloud's faces by HTTP: machines' metadata endpoints on loopback, its control socket.

Starlette's requests and answers on uvicorn's protocol. uvicorn's own server is not used: it takes
the process's signals, and wakes ten times a second for each port. Not here: any path.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

_HEAD_BYTES_MAX: Final = 16 * 1024
_HEAD_SECONDS: Final = 10.0

Handler = Callable[[Request], Awaitable[Response]]


class LostReply(Response):
    """An answer that breaks off before its content: the caller cannot know what it was."""

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        """Send the head alone; uvicorn then closes the connection."""
        head = [(b"content-length", b"1")]
        await send({"type": "http.response.start", "status": self.status_code, "headers": head})


class _OneRequest(H11Protocol):
    """A connection that has to bring its request in time."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.loop.call_later(_HEAD_SECONDS, self._close_if_silent)

    def _close_if_silent(self) -> None:
        if self.cycle is None:
            self.transport.close()


def protocol_for(handler: Handler) -> Callable[[], asyncio.Protocol]:
    """What an event loop's `create_server` wants: one request a connection for the handler."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        response = await handler(Request(scope, receive))
        await response(scope, receive, send)

    config = Config(
        answer,
        http=_OneRequest,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=_HEAD_BYTES_MAX,
    )
    config.load()
    state = ServerState()
    state.default_headers = [(b"connection", b"close")]
    return lambda: _OneRequest(config, state, {})
