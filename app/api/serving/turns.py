"""Turns at work of which only so much may go on at a time: a bounded queue, in order of arrival."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.exceptions import HTTPException

from app.domain.units.durations import measured_duration

BUSY_RETRY_SECONDS = 2


class Turns:
    """Belongs to one event loop. at_once: how many work; waiting_max: how many may wait."""

    def __init__(self, at_once: int, waiting_max: int, what: str, *, seconds_max: float) -> None:
        """what: a noun, for the answer to those that find the queue full.

        seconds_max: how long a turn is waited for.
        """
        self._free = asyncio.Semaphore(at_once)
        self._waiting_max = waiting_max
        self._seconds_max = seconds_max
        self._what = what
        self.waiting = 0

    async def wait(self) -> None:
        """Wait for a turn, which `give_back` ends. Raises 503 when the queue is full or slow."""
        if self._free.locked() and self.waiting >= self._waiting_max:
            raise _busy(f"Too many {self._what} at a time; try again in a moment.")
        self.waiting += 1
        try:
            async with asyncio.timeout(self._seconds_max):
                await self._free.acquire()
        except TimeoutError:
            limit = measured_duration(self._seconds_max)
            raise _busy(f"No free slot within {limit} ({self._what}); try again.") from None
        finally:
            self.waiting -= 1

    def give_back(self) -> None:
        """End a turn."""
        self._free.release()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """One turn. Raises 503 with Retry-After when the queue is full or slow."""
        await self.wait()
        try:
            yield
        finally:
            self.give_back()


def _busy(detail: str) -> HTTPException:
    return HTTPException(503, detail, headers={"Retry-After": str(BUSY_RETRY_SECONDS)})
