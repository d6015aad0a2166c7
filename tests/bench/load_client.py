"""A load client that costs little: keep-alive connections that send bytes made beforehand.

Each connection sends its next request when the answer to the last one is complete. Not here: what
is sent.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import repeat
from typing import cast

import uvloop

NextRequest = Callable[[], bytes]
_LENGTH = b"content-length:"
_GRACE_SECONDS = 15.0


@dataclass
class LoadResult:
    """What a stretch of load came to. latencies: seconds, of the good answers."""

    wall_seconds: float = 0.0
    client_cpu_seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    refused: dict[int, int] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Good answers."""
        return len(self.latencies)

    @property
    def per_second(self) -> float:
        """Good answers in a second."""
        return self.count / self.wall_seconds

    def percentile_ms(self, share: float) -> float:
        """The latency that so large a share of the answers stayed within, in milliseconds."""
        ordered = sorted(self.latencies)
        return 1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def run_load(
    port: int, next_request: NextRequest, connections: int, seconds: float, wanted: int
) -> LoadResult:
    """Load 127.0.0.1:port for so long. wanted: the status of a good answer.

    Raises RuntimeError when no answer is good, or an answer does not come.
    """
    result = LoadResult()
    began, cpu = time.perf_counter(), time.process_time()
    uvloop.run(_load(port, next_request, connections, seconds, wanted, result))
    result.wall_seconds = time.perf_counter() - began
    result.client_cpu_seconds = time.process_time() - cpu
    if not result.count:
        raise RuntimeError(f"no answer had status {wanted}, but: {result.refused}")
    return result


async def _load(
    port: int,
    next_request: NextRequest,
    connections: int,
    seconds: float,
    wanted: int,
    result: LoadResult,
) -> None:
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    clients = [_Connection(next_request, until, wanted, result) for _ in range(connections)]
    for client in clients:
        await loop.create_connection(repeat(client).__next__, "127.0.0.1", port)
    try:
        async with asyncio.timeout(seconds + _GRACE_SECONDS):
            await asyncio.gather(*(client.done for client in clients))
    except TimeoutError as error:
        raise RuntimeError("an answer did not come in time") from error


class _Connection(asyncio.Protocol):
    """One request at a time, until the time is over."""

    def __init__(
        self, next_request: NextRequest, until: float, wanted: int, result: LoadResult
    ) -> None:
        self._next_request = next_request
        self._until = until
        self._wanted = wanted
        self._result = result
        self._received = b""
        self._sent_at = 0.0
        self._loop = asyncio.get_running_loop()
        self.done: asyncio.Future[None] = self._loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)
        self._send()

    def data_received(self, data: bytes) -> None:
        self._received += data
        head_end = self._received.find(b"\r\n\r\n")
        if head_end < 0 or len(self._received) < head_end + 4 + self._body_length(head_end):
            return
        status = int(self._received[9:12])
        if status == self._wanted:
            self._result.latencies.append(self._loop.time() - self._sent_at)
        else:
            self._result.refused[status] = self._result.refused.get(status, 0) + 1
        self._received = b""
        if self._loop.time() < self._until:
            self._send()
        else:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.done.done():
            return
        if self._loop.time() < self._until:
            self.done.set_exception(RuntimeError(f"the server closed a connection: {exc}"))
        else:
            self.done.set_result(None)

    def _send(self) -> None:
        self._sent_at = self._loop.time()
        self._transport.write(self._next_request())

    def _body_length(self, head_end: int) -> int:
        head = self._received[:head_end].lower()
        at = head.index(_LENGTH) + len(_LENGTH)
        end = head.find(b"\r\n", at)
        return int(head[at : end if end > 0 else head_end])
