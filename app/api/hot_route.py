"""A route whose endpoint reads the request itself and gives a response.

Nothing is resolved or serialised around it, which is a twentieth of a quick route's work. Not here:
the endpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.responses import Response


class HotRoute(APIRoute):
    """For `async def endpoint(request: Request) -> Response`; described as any other route."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The endpoint itself."""
        endpoint: Callable[[Request], Coroutine[Any, Any, Response]] = self.endpoint
        return endpoint
