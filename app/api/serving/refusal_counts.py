"""Refused attempts of this process, counted in memory and written every few seconds.

Who tries a thousand keys a second makes one row a minute, not a thousand writes. A process that is
killed loses the counts of its last seconds. Not here: which answers are refusals
(`request_origins`).
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from datetime import datetime
from typing import Final
from uuid import UUID

from anyio import to_thread

from app.orchestration.frame.runtime import Runtime
from app.storage.audit.audit_repository import RefusedAttempts

WRITTEN_EVERY_SECONDS: Final = 5.0
COUNTED_APART_MAX: Final = 100
"""So many (address, key, action) of a minute; the rest is counted under one name, for a part of
the name is what a stranger sends.
"""
_OTHERS: Final = ("others", "", None, "others")

log = logging.getLogger(__name__)

_Name = tuple[datetime, str, str, UUID | None, str]


class RefusalCounts:
    """For the event loop's thread alone, but for the writing."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._counts: dict[_Name, int] = {}
        self._minute: datetime | None = None
        self._apart: set[_Name] = set()
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def count(self, address: str, key_prefix: str, key_id: UUID | None, action: str) -> None:
        """One refused attempt, now. key_id: of a key that is known."""
        minute = self._runtime.clock.now().replace(second=0, microsecond=0)
        name: _Name = (minute, address, key_prefix, key_id, action)
        if minute != self._minute:
            self._minute, self._apart = minute, set()
        if name not in self._apart:
            if len(self._apart) < COUNTED_APART_MAX:
                self._apart.add(name)
            else:
                name = (minute, *_OTHERS)
        self._counts[name] = self._counts.get(name, 0) + 1

    def start(self) -> None:
        """Begin to write."""
        self._task = asyncio.create_task(self._run(), name="refusal-counts")

    async def stop(self) -> None:
        """Write what is left, and end."""
        self._stop.set()
        if self._task is not None:
            await self._task

    async def _run(self) -> None:
        while not self._stop.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), WRITTEN_EVERY_SECONDS)
            if self._counts:
                counts, self._counts = self._counts, {}
                await to_thread.run_sync(self._write, counts)

    def _write(self, counts: dict[_Name, int]) -> None:
        """Counts that cannot be written, as on a full disk, are lost, and the log says so."""
        attempts = [RefusedAttempts(*name, number) for name, number in counts.items()]
        try:
            with self._runtime.begin() as uow:
                uow.audit.count_refusals(attempts, uow.now)
        except Exception as error:
            # Whatever it is, counting must go on: nobody else would start it again.
            total = sum(counts.values())
            log.warning("%d refused attempts were not stored: %s", total, error)
