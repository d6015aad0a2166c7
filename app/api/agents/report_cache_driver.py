"""The board of agents: their reports' cache, driven by the api's event loop.

Lives here: when the cache exchanges with the database, and the thread in which it does. Not here:
what it remembers, answers and writes (`directives.agent_report_cache`), or the routes
(`agents`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from fastapi import FastAPI

from app.orchestration.directives import agent_report_cache
from app.orchestration.directives.agent_report_cache import AgentReportCache, DirectiveChanges
from app.orchestration.frame.runtime import Runtime
from app.storage.session.storage_errors import DatabaseFull, RowsLocked

_STOP_SECONDS_MAX = 10.0

log = logging.getLogger(__name__)


class ReportCacheDriver:
    """The cache and all methods belong to the event loop's thread."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self.cache = AgentReportCache(runtime, self._loop.time, self._wake.set)
        self._stopping = False
        # A thread of its own: requests that fill the others cannot hold up the flush.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="agent-board")
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Say that this process listens, and begin to exchange."""
        await self._tick()
        self._task = asyncio.create_task(self._run(), name="agent-board")

    async def stop(self) -> None:
        """Write what was promised, and end."""
        self._stopping = True
        self._wake.set()
        if self._task is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._task, _STOP_SECONDS_MAX)
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _run(self) -> None:
        """Every half second, and at once when jobs are to be refreshed; until stopped."""
        now = self._loop.time
        next_tick = now() + agent_report_cache.FLUSH_SECONDS
        while not self._stopping:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), max(0.0, next_tick - now()))
            self._wake.clear()
            if self.cache.marked:
                await self._refresh()
            if now() >= next_tick:
                await self._tick()
                next_tick = now() + agent_report_cache.FLUSH_SECONDS
        await self._tick()

    async def _refresh(self) -> None:
        jobs = self.cache.take_marked()
        try:
            self.cache.take_in(await self._in_thread(self.cache.read_jobs, jobs))
        except Exception:
            # The next tick finds these jobs by their version.
            log.warning("directives of %d jobs could not be read", len(jobs), exc_info=True)

    async def _tick(self) -> None:
        """Write contacts, learn which jobs changed, and read their directives."""
        batch = self.cache.begin_exchange()
        if batch is None:
            return
        try:
            changes = await self._in_thread(self.cache.exchange, batch)
        except Exception as error:
            self.cache.fail_exchange(batch)
            trace = None if isinstance(error, DatabaseFull | RowsLocked) else error
            told = "contacts of %d agents could not be written: %s"
            # The first line: below it there may be a whole SQL statement.
            log.warning(told, len(batch.reports), str(error).partition("\n")[0], exc_info=trace)
            return
        self.cache.finish_exchange(batch, changes)

    async def _in_thread(
        self, function: Callable[..., DirectiveChanges], *arguments: Any
    ) -> DirectiveChanges:
        return await self._loop.run_in_executor(self._thread, function, *arguments)


async def start_report_cache(app: FastAPI, runtime: Runtime) -> ReportCacheDriver:
    """Make the board of this app and let it run; to be awaited when the app starts."""
    board = ReportCacheDriver(runtime)
    app.state.report_cache = board
    await board.start()
    return board


async def stop_report_cache(app: FastAPI) -> None:
    """Write what the board has promised and end it; to be awaited when the app stops."""
    board: ReportCacheDriver | None = getattr(app.state, "report_cache", None)
    if board is not None:
        await board.stop()
