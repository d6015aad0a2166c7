"""The smallest HTTP/1.1 server that serves: one request a connection, bounded in size and time.

Both of the cloud's faces use it: machines' metadata endpoints on loopback, its control socket.
Not here: any path.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlsplit

from app.adapters.providers.local.files.durable_files import say

HEAD_BYTES_MAX = 16 * 1024
_BODY_BYTES_MAX = 1024 * 1024
_IO_TIMEOUT_SECONDS = 10.0
_REASONS = {
    200: "OK", 400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found",
    405: "Method Not Allowed", 500: "Internal Server Error",
}  # fmt: skip


@dataclass(frozen=True)
class Request:
    """One request. Header names are lower case; `hung_up` returns once the caller is gone."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    hung_up: Callable[[], Awaitable[object]]


@dataclass(frozen=True)
class Reply:
    """One answer."""

    status: int
    body: bytes = b""
    content_type: str = "text/plain"
    headers: dict[str, str] = field(default_factory=dict)


class NoReply(Exception):
    """Raised by a handler to close the connection without a word: the reply is lost."""


class BadRequest(Exception):
    """The bytes received are no request we take."""


Handler = Callable[[Request], Awaitable[Reply]]


def connection_handler(
    handler: Handler,
) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    """What `asyncio.start_server` wants, for a handler of requests."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            reply = await _reply_to(reader, handler)
            if reply is not None:
                writer.write(_encode(reply))
                await asyncio.wait_for(writer.drain(), _IO_TIMEOUT_SECONDS)
        except (OSError, TimeoutError):
            pass  # the caller is gone; it will ask again
        finally:
            writer.close()

    return serve


async def _reply_to(reader: asyncio.StreamReader, handler: Handler) -> Reply | None:
    try:
        request = await asyncio.wait_for(_read_request(reader), _IO_TIMEOUT_SECONDS)
    except (BadRequest, ValueError, asyncio.LimitOverrunError) as error:
        return Reply(400, f"{error}\n".encode())
    except asyncio.IncompleteReadError:
        return None
    try:
        return await handler(request)
    except NoReply:
        return None
    except Exception:
        # One bad request must not end the cloud; the trace goes to its log.
        say(traceback.format_exc())
        return Reply(500, b"the local cloud failed; see cloud.log\n")


async def _read_request(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    words = head[0].split(" ")
    if len(words) != 3:
        raise BadRequest("not an HTTP request line")
    headers: dict[str, str] = {}
    for line in head[1:]:
        name, colon, value = line.partition(":")
        if colon:
            headers[name.strip().lower()] = value.strip()
    length = int(headers.get("content-length", "0"))
    if not 0 <= length <= _BODY_BYTES_MAX:
        raise BadRequest(f"a body has at most {_BODY_BYTES_MAX} bytes")
    body = await reader.readexactly(length)
    target = urlsplit(words[1])
    query = dict(parse_qsl(target.query, keep_blank_values=True))
    return Request(words[0], target.path, query, headers, body, lambda: reader.read(1))


def _encode(reply: Reply) -> bytes:
    lines = [
        f"HTTP/1.1 {reply.status} {_REASONS.get(reply.status, 'Status')}",
        f"Content-Type: {reply.content_type}",
        f"Content-Length: {len(reply.body)}",
        "Connection: close",
        *(f"{name}: {value}" for name, value in reply.headers.items()),
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + reply.body
