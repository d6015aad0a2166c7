"""Bounds on every request before a route sees it: body and its pace, address, headers, NUL bytes.

Lives here: the ASGI layer that refuses. Not here: what a body means (the routes).
"""

from __future__ import annotations

import asyncio

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.serving.connection_limits import ConnectionLimits, limits_of_request
from app.api.serving.error_responses import problem
from app.domain.spec.spec_text import MAX_SPEC_BYTES
from app.domain.units.durations import format_duration, measured_duration

MIB = 1 << 20
BODY_BYTES_MAX = MIB
# Bodies that are a job spec, by their path.
SPEC_PATHS = frozenset({"/api/v1/jobs", "/api/v1/jobs/check", "/api/v1/estimates"})
# Routes that take more, by the beginning of their path; they stream what they get.
LARGER_BODIES = {
    "/api/v1/workdirs/": 100 * MIB,
    "/agent/v1/logs": 4 * MIB,
    "/agent/v1/reports": 4 * MIB,
}
_TARGET_BYTES_MAX = 8_192
_HEADERS_MAX = 100
_HEADER_BYTES_MAX = 64 << 10
# A refused body is still read a little, so that the client has a chance to see the answer.
_DRAINED_BYTES_MAX = 16 * MIB
_DRAIN_SECONDS = 2.0


class RequestLimits:
    """Refuses what is too large or cannot be text, with 413, 414, 431 or 400."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, with its body counted, or answer it here."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        target: bytes = (scope.get("raw_path") or b"") + b"?" + scope["query_string"]
        if len(target) > _TARGET_BYTES_MAX:
            await _answer(scope, receive, send, 414, "The address is longer than 8 KiB.")
        elif b"%00" in target or b"\0" in target:
            await _answer(scope, receive, send, 400, "The address holds a NUL byte; remove it.")
        elif _too_many(scope["headers"]):
            what = f"more than {_HEADERS_MAX} headers, or {_HEADER_BYTES_MAX >> 10} KiB of them"
            await _answer(scope, receive, send, 431, f"The request has {what}; send fewer.")
        else:
            await self._bounded(scope, receive, send)

    async def _bounded(self, scope: Scope, receive: Receive, send: Send) -> None:
        limit = limit_of(scope["path"])
        declared = next((v for k, v in scope["headers"] if k == b"content-length"), b"0")
        # Servers check that it is a number.
        if declared.isdigit() and int(declared[:20]) > limit:
            await _answer(scope, receive, send, 413, _too_large(limit))
            return
        body = _Body(receive, limit, limits_of_request(scope))
        await self._app(scope, body.receive, send)


class _Body:
    """Counts a body while a route reads it, and the time for which the route waits for it."""

    def __init__(self, receive: Receive, bytes_max: int, limits: ConnectionLimits) -> None:
        self._receive = receive
        self._bytes_max = bytes_max
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._seen = 0
        self._waited = 0.0
        self._ended = False

    async def receive(self) -> Message:
        """The next message. Raises HTTPException 413 or 408. After the body there is no limit:
        who asks then waits for the client to leave.
        """
        if self._ended:
            return await self._receive()
        earned = self._seen / self._limits.body_bytes_per_second
        began = self._loop.time()
        try:
            async with asyncio.timeout(self._limits.body_seconds + earned - self._waited):
                message = await self._receive()
        except TimeoutError:
            raise HTTPException(408, self._late(), headers={"Connection": "close"}) from None
        self._waited += self._loop.time() - began
        self._seen += len(message.get("body", b""))
        self._ended = not message.get("more_body", False)
        if self._seen > self._bytes_max:
            raise HTTPException(413, _too_large(self._bytes_max))
        return message

    def _late(self) -> str:
        rate = self._limits.body_bytes_per_second
        waited = format_duration(self._waited)
        return (
            f"The body arrived too slowly: {self._seen:,} bytes in {waited} of "
            f"waiting. At least {rate:,} bytes a second are expected after the first "
            f"{measured_duration(self._limits.body_seconds)}; try again, or ask whoever "
            "runs this api for LOWTIDE_REQUEST_BODY_BYTES_PER_SECOND."
        )


def limit_of(path: str) -> int:
    """Most bytes that a body may have at a path."""
    if path in SPEC_PATHS:
        return MAX_SPEC_BYTES
    for beginning, limit in LARGER_BODIES.items():
        if path.startswith(beginning):
            return limit
    return BODY_BYTES_MAX


def _too_many(headers: list[tuple[bytes, bytes]]) -> bool:
    if len(headers) > _HEADERS_MAX:
        return True
    return sum(len(name) + len(value) for name, value in headers) > _HEADER_BYTES_MAX


def _too_large(limit: int) -> str:
    if limit == MAX_SPEC_BYTES:
        return f"The job spec is larger than {limit >> 10} KiB; put what is large into `workdir`."
    return f"The body is larger than {limit // MIB} MiB; send less."


async def _answer(scope: Scope, receive: Receive, send: Send, status: int, detail: str) -> None:
    """Answer at once, then read on within bounds: closing at once would destroy the answer."""
    answer = problem(status, detail, instance=scope["path"], headers={"Connection": "close"})
    await send({"type": "http.response.start", "status": status, "headers": answer.raw_headers})
    await send({"type": "http.response.body", "body": answer.body, "more_body": True})
    try:
        async with asyncio.timeout(_DRAIN_SECONDS):
            await _drain(receive)
    except TimeoutError:
        pass
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _drain(receive: Receive) -> None:
    drained = 0
    while drained <= _DRAINED_BYTES_MAX:
        message = await receive()
        drained += len(message.get("body", b""))
        if message["type"] != "http.request" or not message.get("more_body", False):
            return
