"""Routes whose endpoints read the request themselves and give a response, and the short way there.

Lives here: `HotRoute`, as which they are registered and described, and `HotPaths`, which calls them
before the framework looks for a route, resolves dependencies and opens stacks: more work than the
endpoints have themselves. Not here: the endpoints.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

Endpoint = Callable[[Request], Coroutine[Any, Any, Response]]
QuickEndpoint = Callable[[Request], Coroutine[Any, Any, Response | None]]
ErrorResponse = Callable[[Request, Exception], Awaitable[Response | None]]


class HotRoute(APIRoute):
    """For `async def endpoint(request: Request) -> Response`; described as any other route."""

    def get_route_handler(self) -> Endpoint:
        """The endpoint itself."""
        endpoint: Endpoint = self.endpoint
        return endpoint


@dataclass(frozen=True)
class HotPath:
    """What is served the short way; stands in the scope where the framework puts its route."""

    path: str
    endpoint: QuickEndpoint


class HotPaths:
    """ASGI layer: serves the paths given, by method, and passes everything else on.

    An endpoint that answers None, before it reads the body, leaves the request to its usual route.
    explain: the answer to an error, as every other route gives it; None where it has none.
    """

    def __init__(
        self,
        app: ASGIApp,
        endpoints: Mapping[tuple[str, str], QuickEndpoint],
        explain: ErrorResponse,
    ) -> None:
        self._app = app
        self._paths = {key: HotPath(key[1], endpoint) for key, endpoint in endpoints.items()}
        self._explain = explain

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the request, or pass it on."""
        hot = self._paths.get((scope.get("method", ""), scope.get("path", "")))
        if hot is None:
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive, send)
        try:
            response = await hot.endpoint(request)
        except Exception as error:
            response = await self._explain(request, error)
            if response is None:
                raise
        if response is None:
            await self._app(scope, receive, send)
            return
        scope["route"] = hot
        await response(scope, receive, send)
