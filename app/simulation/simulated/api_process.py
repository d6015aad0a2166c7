"""One simulated api process: the production cache of agents' reports, driven in virtual time.

Lives here: when the cache exchanges with the database, and what can go wrong then. An exchange that
would write nothing and find nothing is left out: half-second steps are taken only while reports
wait to be written or a remembered job has changed, and every five seconds; while nobody is
remembered, as seldom as leaves no gap in hearing. Not here: what the cache does
(`directives.agent_report_cache`), or which process a request reaches (`agent_network`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol
from uuid import UUID

import orjson
from sqlalchemy import Engine

from app.orchestration.agents.receive_agent_report import receive_in_transaction
from app.orchestration.directives.agent_report_cache import (
    FLUSH_SECONDS,
    LISTENING_SECONDS,
    AgentReportCache,
    CacheSilent,
    DirectiveChanges,
    ExchangeBatch,
)
from app.orchestration.directives.read_steady_report import read_steady
from app.orchestration.frame.runtime import Runtime
from app.simulation.engine.event_loop import EventLoop
from app.simulation.engine.virtual_clock import MICROSECONDS, VirtualClock, microseconds
from app.simulation.engine.watched_transactions import Interrupted, WatchedTransactions
from app.simulation.simulated.answer_watch import AnswerWatch
from app.storage.unit_of_work import UnitOfWork
from trainer.protocol.agent_report import AgentReport
from trainer.protocol.directive import ReportReply
from trainer.protocol.wire import decode, encode

_FLUSH_US = microseconds(FLUSH_SECONDS)
_LISTENING_US = microseconds(LISTENING_SECONDS)
_LISTENING_TO_NOBODY_US = microseconds(14.0)
_REPORTS_UNTIL_IDLE = 6


class Unreachable(Exception):
    """No answer came: the request or its reply was lost, or the control plane is away."""


@dataclass
class ExchangeFaults:
    """What happens to the next exchanges.

    fails_until_us: none is written before. doubtful: so many are written, and their answers are
    lost. slow: seconds that the next ones wait for the database, and again for its answer.
    """

    fails_until_us: int = 0
    doubtful: int = 0
    slow: list[float] = field(default_factory=list)


class ExchangeListener(Protocol):
    """Who is told what came of exchanges."""

    def written(self, instance_id: UUID, answered_us: int) -> None:
        """An instance's contact has its answer of this instant."""
        ...

    def listened(self) -> None:
        """It is written that agents are heard."""
        ...


class ApiProcess:
    """It is up from the start. `faults` is what goes wrong with its exchanges.

    database_away: it reaches no database, and goes on.
    """

    def __init__(
        self,
        number: int,
        runtime: Runtime,
        engine: Engine,
        transactions: WatchedTransactions,
        loop: EventLoop,
        listener: ExchangeListener,
    ) -> None:
        self.up = True
        self.database_away = False
        self.faults = ExchangeFaults()
        self.steady_reports = self.full_reports = 0
        self._reader = f"api {number}"
        self._runtime = replace(runtime, begin=self._begin)
        self._engine = engine
        self._transactions = transactions
        self._clock: VirtualClock = loop.clock
        self._loop = loop
        self._listener = listener
        self._starts_us = loop.clock.true_us + number * _FLUSH_US // 2
        self._life = 0
        self._forget()

    def _forget(self) -> None:
        """A process that starts knows nobody."""
        self._life += 1
        self.watch = AnswerWatch(self._engine, self._clock)
        self.cache = AgentReportCache(
            self._runtime,
            lambda: self._clock.elapsed_seconds,
            lambda: None,
            _REPORTS_UNTIL_IDLE * self._runtime.limits.report_interval_seconds,
        )
        self._promised_us: dict[UUID, int] = {}
        self._listened_us = self._ticked_us = -_LISTENING_US
        self._in_flight = False

    # --- requests -----------------------------------------------------------------------------

    def report(self, credential_hash: str, report: AgentReport) -> ReportReply:
        """Answer a report. Raises Unreachable and what the production verb raises."""
        # What crosses a process crosses it as JSON: the shapes must survive that.
        document = orjson.loads(orjson.dumps(encode(report)))
        steady = read_steady(document)
        if steady is not None:
            try:
                answer = self.cache.answer(credential_hash, steady)
            except CacheSilent as error:
                raise Unreachable from error
            if answer is not None:
                content, job_id, directive = answer
                self.steady_reports += 1
                self._promised_us[steady.instance_id] = self._clock.true_us
                self.watch.answered(steady, job_id, directive)
                return decode(ReportReply, orjson.loads(content))
        self.full_reports += 1
        news, computed = decode(AgentReport, document), self.cache.now()
        try:
            job_id, reply = receive_in_transaction(self._runtime, credential_hash, news)
        except Interrupted as error:
            raise Unreachable from error
        self.cache.admit(credential_hash, job_id, news, reply, computed)
        instance_id = UUID(news.instance_id)
        self._promised_us.pop(instance_id, None)
        self._listener.written(instance_id, self._clock.true_us)
        return decode(ReportReply, orjson.loads(orjson.dumps(encode(reply))))

    # --- the exchange -------------------------------------------------------------------------

    def next_us(self) -> int | None:
        """When it is to tick; None while it is down or waits for the database."""
        if not self.up or self._in_flight:
            return None
        now_us = self._clock.true_us
        if self.cache.marked:
            return now_us
        changed = self._transactions.changed_since
        job_ids = self.cache.job_ids
        needed = self.cache.promised or any(changed(one, self._reader) for one in job_ids)
        period_us = _LISTENING_US if job_ids else _LISTENING_TO_NOBODY_US
        wanted_us = now_us if needed else self._listened_us + period_us
        first_us = max(wanted_us, now_us, self._ticked_us + 1) - self._starts_us
        return -(-first_us // _FLUSH_US) * _FLUSH_US + self._starts_us

    def tick(self) -> None:
        """Read marked jobs, or exchange."""
        if self.cache.marked:
            self._refresh()
        else:
            self._ticked_us = self._clock.true_us
            self._exchange()

    def exchange_now(self) -> bool:
        """Exchange at once; whether all is written now."""
        if not self._in_flight:
            self._exchange()
        return not self._in_flight and not self.cache.promised

    def _refresh(self) -> None:
        job_ids = self.cache.take_marked()
        try:
            self.cache.take_in(self.cache.read_jobs(job_ids))
        except Interrupted:
            return  # the next exchange finds these jobs by their version
        for job_id in job_ids:
            self._transactions.mark(job_id, self._reader)

    def _exchange(self) -> None:
        batch = self.cache.begin_exchange()
        if batch is None:
            return
        if self.faults.slow:
            seconds, life = self.faults.slow.pop(0), self._life
            self._in_flight = True
            self._loop.after(seconds, lambda: self._write_late(batch, seconds, life))
            return
        changes = self._write(batch)
        if changes is not None:
            self._finish(batch, changes)

    def _write_late(self, batch: ExchangeBatch, seconds: float, life: int) -> None:
        if life != self._life:
            return
        changes = self._write(batch)
        if changes is None:
            self._in_flight = False
            return

        def answered() -> None:
            if life == self._life:
                self._in_flight = False
                self._finish(batch, changes)

        self._loop.after(seconds, answered)

    def _write(self, batch: ExchangeBatch) -> DirectiveChanges | None:
        """One exchange in the database; None where it failed, or where that is not known."""
        try:
            if self._clock.true_us < self.faults.fails_until_us:
                raise Interrupted("contacts cannot be written")
            with self._transactions.spared():
                changes = self.cache.exchange(batch)
            if self.faults.doubtful:
                self.faults.doubtful -= 1
                raise Interrupted("contacts are written, and the answer was lost")
        except Interrupted:
            self.cache.fail_exchange(batch)
            return None
        for job_id in batch.versions:
            self._transactions.mark(job_id, self._reader)
        return changes

    def _finish(self, batch: ExchangeBatch, changes: DirectiveChanges) -> None:
        self.cache.finish_exchange(batch, changes)
        if batch.listens:
            self._listened_us = self._ticked_us
            self._listener.listened()
        for report, answered in batch.reports:
            at_us = self._clock.starts_us + round(answered * MICROSECONDS)
            if self._promised_us.get(report.instance_id) == at_us:
                del self._promised_us[report.instance_id]
            self._listener.written(report.instance_id, at_us)

    @contextmanager
    def _begin(self) -> Iterator[UnitOfWork]:
        if self.database_away:
            raise Interrupted("the database is away")
        with self._transactions() as uow:
            yield uow

    # --- its end ------------------------------------------------------------------------------

    def stop(self) -> None:
        """It ends as it is asked to: what it had promised is written."""
        self.exchange_now()
        self.kill()

    def kill(self) -> list[UUID]:
        """It ends at once, and its memory with it; whose answers are written nowhere."""
        lost = list(self._promised_us)
        self.up = False
        self._forget()
        return lost

    def start(self) -> None:
        """It is started again, and says that it listens before it answers."""
        self.up = True
        self._ticked_us = self._clock.true_us
        self._exchange()
