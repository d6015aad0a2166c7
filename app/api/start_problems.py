"""What a wrong setting says at the start of the api: its sentence, without a traceback.

The ASGI layer of it. Starlette tells a server of a failed start with the traceback of whatever was
raised. Of a setting that is wrong it would say where the program noticed, and nothing of use. Not
here: which settings are wrong (`app.settings`, and what `api_parts` opens).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.settings import SettingsError


@contextmanager
def start_problem_kept(app: FastAPI) -> Iterator[None]:
    """Around the start of the app: a wrong setting is kept for the layer."""
    try:
        yield
    except SettingsError as error:
        app.state.start_problem = str(error)
        raise


class StartProblems:
    """The layer, which tells the server of a failed start."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass everything on but the start and the end of the app, whose failure gets its words."""
        if scope["type"] != "lifespan":
            await self._app(scope, receive, send)
            return

        async def told(message: Message) -> None:
            problem: str | None = getattr(scope["app"].state, "start_problem", None)
            if message["type"] == "lifespan.startup.failed" and problem is not None:
                message = {**message, "message": problem}
            await send(message)

        await self._app(scope, receive, told)
