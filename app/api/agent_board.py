"""What this process remembers of agents, so that a steady report costs no transaction.

Lives here: the board, its flush and its refresh. Not here: the routes (`agents`), and any report
that carries news, which goes through `receive_agent_report` under its job's lock.

An answer renews the agent's lease, and the control plane may only declare a lease over by what is
written in the contacts. So an answer from memory is a promise to write it soon: every half second
in one statement. When writing has failed for ten seconds the board stops answering (503), and the
agents' leases run: what is written is then never older than ten seconds against what was promised,
well within the minute that is added before a lease counts as over. The same exchange tells which
jobs have changed, whoever changed them, so a directive is never older than that either.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import orjson
from fastapi import FastAPI

from app.orchestration.lost_rows import note_listening
from app.orchestration.read_directives import JobDirectives, read_directives
from app.orchestration.runtime import Runtime
from app.orchestration.steady_reports import SteadyReport, answered, is_steady
from app.ports.unit_of_work import DatabaseFull, RowsLocked
from trainer.protocol.agent_report import AgentReport
from trainer.protocol.directive import Directive, DirectiveKind, ReportReply
from trainer.protocol.wire import encode

FLUSH_SECONDS = 0.5
PROMISE_SECONDS_MAX = 10.0
IDLE_SECONDS_MAX = 60.0
LISTENING_SECONDS = 5.0
_DRAIN_SECONDS_MIN = 0.5
_STOP_SECONDS_MAX = 10.0

log = logging.getLogger(__name__)


class BoardSilent(Exception):
    """The board cannot keep its promises just now and answers nobody (HTTP 503)."""


@dataclass(slots=True)
class Entry:
    """One agent, under the digest of its credential. Instants are seconds of the loop's clock.

    drain_until: when a drain ends; its directive carries seconds, which shrink meanwhile.
    disk_full: what its newest report through a transaction said.
    report: the newest one answered from memory and not yet written.
    """

    instance_id: UUID
    job_id: UUID
    session_id: str
    seq: int
    fence: int | None
    total_steps: int | None
    ack_fact_no: int
    directive: Directive
    drain_until: float | None
    answered: float
    disk_full: bool = False
    report: SteadyReport | None = None
    reply: bytes | None = None


@dataclass(frozen=True, slots=True)
class _Exchange:
    """What one exchange with the database brought: directives of jobs that had changed."""

    read: float
    jobs: dict[UUID, JobDirectives] = field(default_factory=dict)


class AgentBoard:
    """All methods but `refresh_jobs` belong to the event loop's thread."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self._entries: dict[str, Entry] = {}
        self._of_job: dict[UUID, set[str]] = {}
        self._unwritten: set[str] = set()
        self._to_refresh: set[UUID] = set()
        self._loop = asyncio.get_running_loop()
        self._now: Callable[[], float] = self._loop.time
        self._kept_at = self._now()
        self._listened_at: float | None = None
        self._wake = asyncio.Event()
        self._stopping = False
        # A thread of its own: requests that fill the others cannot hold up the flush.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="agent-board")
        self._task: asyncio.Task[None] | None = None

    def now(self) -> float:
        """Seconds of the clock that the board's instants are of; also from other threads."""
        return self._now()

    def __len__(self) -> int:
        return len(self._entries)

    # --- answering ----------------------------------------------------------------------------

    def answer(
        self, credential_hash: str, report: SteadyReport
    ) -> tuple[bytes, UUID, Directive] | None:
        """The answer to a report without news, its job, and what it directs; None when it needs a
        transaction.

        Raises BoardSilent.
        """
        entry = self._entries.get(credential_hash)
        if entry is None or not is_steady(entry, report):
            return None
        now = self._now()
        if now - self._kept_at > PROMISE_SECONDS_MAX:
            raise BoardSilent
        entry.seq, entry.answered, entry.report = report.seq, now, report
        self._unwritten.add(credential_hash)
        return self._reply(entry, now), entry.job_id, entry.directive

    def admit(
        self,
        credential_hash: str,
        job_id: UUID,
        report: AgentReport,
        reply: ReportReply,
        computed: float,
    ) -> None:
        """Remember an agent that was just answered by a transaction.

        computed: an instant before that transaction began.
        """
        known = self._entries.get(credential_hash)
        progress = report.progress
        entry = Entry(
            instance_id=UUID(report.instance_id),
            job_id=job_id,
            session_id=report.session_id,
            seq=report.seq,
            fence=report.fence,
            total_steps=None if progress is None else progress.total_steps,
            ack_fact_no=reply.ack_fact_no,
            directive=reply.directive,
            drain_until=_drain_until(reply.directive, computed),
            answered=self._now(),
            disk_full=report.disk_full is not None,
        )
        if known is not None and known.directive.version > reply.directive.version:
            entry.directive, entry.drain_until = known.directive, known.drain_until
        self._entries[credential_hash] = entry
        self._unwritten.discard(credential_hash)
        mates = self._of_job.setdefault(job_id, set())
        mates.add(credential_hash)
        if len(mates) > 1:
            # News of one machine changes what the others should do: tell them at once.
            self._mark((job_id,))

    def refresh_jobs(self, job_ids: Iterable[UUID]) -> None:
        """Read the directives of these jobs anew at once; from any thread, never blocks."""
        with suppress(RuntimeError):  # the loop has ended, and the board with it
            self._loop.call_soon_threadsafe(self._mark, tuple(job_ids))

    def _mark(self, job_ids: Iterable[UUID]) -> None:
        known = [job_id for job_id in job_ids if job_id in self._of_job]
        if known:
            self._to_refresh.update(known)
            self._wake.set()

    def _reply(self, entry: Entry, now: float) -> bytes:
        if entry.drain_until is not None:
            seconds = max(_DRAIN_SECONDS_MIN, entry.drain_until - now)
            return self._encoded(entry, replace(entry.directive, drain_seconds=seconds))
        if entry.reply is None:
            entry.reply = self._encoded(entry, entry.directive)
        return entry.reply

    def _encoded(self, entry: Entry, directive: Directive) -> bytes:
        limits = self.runtime.limits
        reply = ReportReply(
            ack_fact_no=entry.ack_fact_no,
            lease_seconds=limits.agent_lease_seconds,
            next_report_seconds=limits.report_interval_seconds,
            directive=directive,
        )
        return orjson.dumps(encode(reply))

    # --- the exchange with the database -------------------------------------------------------

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
        next_tick = self._now() + FLUSH_SECONDS
        while not self._stopping:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), max(0.0, next_tick - self._now()))
            self._wake.clear()
            if self._to_refresh:
                await self._refresh()
            if self._now() >= next_tick:
                await self._tick()
                next_tick = self._now() + FLUSH_SECONDS
        await self._tick()

    async def _refresh(self) -> None:
        jobs = tuple(self._to_refresh)
        self._to_refresh.clear()
        try:
            self._take_in(await self._in_thread(self._read, jobs))
        except Exception:
            # The next tick finds these jobs by their version.
            log.warning("directives of %d jobs could not be read", len(jobs), exc_info=True)

    async def _tick(self) -> None:
        """Write contacts, learn which jobs changed, and read their directives."""
        began = self._now()
        self._forget_idle(began)
        listens = self._listened_at is None or began - self._listened_at >= LISTENING_SECONDS
        if not self._entries and not listens:
            self._kept_at = began
            return
        written, self._unwritten = self._unwritten, set()
        reports = [
            (entry.report, entry.answered)
            for entry in map(self._entries.get, written)
            if entry is not None and entry.report is not None
        ]
        versions: dict[UUID, int] = {}
        for entry in self._entries.values():
            version = entry.directive.version
            versions[entry.job_id] = min(version, versions.get(entry.job_id, version))
        try:
            self._take_in(await self._in_thread(self._exchange, reports, versions, listens))
        except Exception as error:
            self._unwritten |= written
            trace = None if isinstance(error, DatabaseFull | RowsLocked) else error
            told = "contacts of %d agents could not be written: %s"
            # The first line: below it there may be a whole SQL statement.
            log.warning(told, len(reports), str(error).partition("\n")[0], exc_info=trace)
            return
        self._kept_at = began
        if listens:
            self._listened_at = began

    async def _in_thread(self, function: Callable[..., _Exchange], *arguments: Any) -> _Exchange:
        return await self._loop.run_in_executor(self._thread, function, *arguments)

    def _exchange(
        self, reports: list[tuple[SteadyReport, float]], versions: dict[UUID, int], listens: bool
    ) -> _Exchange:
        with self.runtime.begin() as uow:
            if listens:
                note_listening(uow, self.runtime.limits.listening_gap_seconds)
            now, at = uow.now, self._now()
            uow.contacts.store([answered(report, at - then) for report, then in reports], now)
            changed = uow.contacts.changed_jobs(versions)
        return self._read(changed) if changed else _Exchange(at)

    def _read(self, job_ids: Iterable[UUID]) -> _Exchange:
        at = self._now()
        return _Exchange(at, read_directives(self.runtime, job_ids))

    def _take_in(self, exchange: _Exchange) -> None:
        """Take newer directives over; agents whose credential was revoked leave the board."""
        for job_id, directives in exchange.jobs.items():
            for credential_hash in tuple(self._of_job.get(job_id, ())):
                entry = self._entries[credential_hash]
                held = directives.get(entry.instance_id)
                if held is None or held.credential_hash != credential_hash:
                    self._forget(credential_hash)
                elif held.directive.version > entry.directive.version:
                    entry.directive, entry.reply = held.directive, None
                    entry.drain_until = _drain_until(held.directive, exchange.read)

    def _forget_idle(self, now: float) -> None:
        idle = [
            credential_hash
            for credential_hash, entry in self._entries.items()
            if now - entry.answered > IDLE_SECONDS_MAX and credential_hash not in self._unwritten
        ]
        for credential_hash in idle:
            self._forget(credential_hash)

    def _forget(self, credential_hash: str) -> None:
        entry = self._entries.pop(credential_hash)
        self._unwritten.discard(credential_hash)
        mates = self._of_job[entry.job_id]
        mates.discard(credential_hash)
        if not mates:
            del self._of_job[entry.job_id]


def _drain_until(directive: Directive, computed: float) -> float | None:
    if directive.kind is not DirectiveKind.DRAIN or directive.drain_seconds is None:
        return None
    return computed + directive.drain_seconds


async def start_board(app: FastAPI, runtime: Runtime) -> AgentBoard:
    """Make the board of this app and let it run; to be awaited when the app starts."""
    board = AgentBoard(runtime)
    app.state.agent_board = board
    await board.start()
    return board


async def stop_board(app: FastAPI) -> None:
    """Write what the board has promised and end it; to be awaited when the app stops."""
    board: AgentBoard | None = getattr(app.state, "agent_board", None)
    if board is not None:
        await board.stop()
