"""The control plane's API as simulated agents reach it.

Lives here: registration and reports through the production verbs, the board that answers steady
reports from memory by the real board's rule, and outages. What the real board does every half
second, this one does when somebody is about to look. Not here: the agent (`simulated_agent`), or
what gets lost between the two (`faults`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from app.domain.credentials import digest
from app.orchestration.lost_rows import note_listening
from app.orchestration.read_directives import read_directives
from app.orchestration.receive_agent_report import receive_agent_report
from app.orchestration.register_agent import register_agent
from app.orchestration.runtime import Runtime
from app.orchestration.steady_reports import SteadyReport, answered, is_steady
from app.simulation.event_log import EventLog
from app.simulation.virtual_clock import VirtualClock
from app.simulation.watched_transactions import Interrupted, WatchedTransactions
from trainer.protocol.agent_report import AgentReport, Registration
from trainer.protocol.directive import Directive, DirectiveKind, RegistrationReply, ReportReply
from trainer.protocol.wire import decode, encode

_LISTENING_US = 5_000_000


class Unreachable(Exception):
    """No answer came: the request or its reply was lost, or the control plane is away."""


@dataclass
class _Entry:
    """An agent on the board, under the digest of its credential."""

    instance_id: UUID
    job_id: UUID
    session_id: str
    seq: int
    fence: int | None
    total_steps: int | None
    ack_fact_no: int
    directive: Directive
    disk_full: bool


class AgentNetwork:
    """One api process."""

    def __init__(
        self,
        runtime: Runtime,
        transactions: WatchedTransactions,
        clock: VirtualClock,
        log: EventLog,
    ) -> None:
        self.away = False
        self.full_reports = 0
        self.steady_reports = 0
        self.answered_us: dict[str, int] = {}
        self.hears_since_us = clock.starts_us
        self.on_heard_again: Callable[[], None] = lambda: None
        self._runtime = runtime
        self._transactions = transactions
        self._clock = clock
        self._log = log
        self._board: dict[str, _Entry] = {}
        self._unwritten: dict[UUID, tuple[AgentReport, int]] = {}
        self._listened_us: int | None = None

    def register(self, registration: Registration) -> RegistrationReply:
        """Through the production verb. Raises Unreachable and what the verb raises."""
        if self.away:
            raise Unreachable
        try:
            with self._runtime.begin() as uow:
                return register_agent(uow, self._runtime, registration)
        except Interrupted as error:
            raise Unreachable from error

    def report(self, credential: str, report: AgentReport, *, is_copy: bool = False) -> ReportReply:
        """Answer a report. Raises Unreachable and what the production verb raises.

        is_copy: it is late or doubled, so nobody waits for the answer and it proves no life.
        """
        if self.away:
            raise Unreachable
        key = digest(credential)
        entry = self._steady(key, report)
        if entry is None:
            reply = self._full(key, report)
            if not is_copy:
                self._heard(report.instance_id)
            return reply
        self.steady_reports += 1
        if not is_copy:
            self._heard(report.instance_id)
        entry.seq = report.seq
        self._unwritten[entry.instance_id] = (report, self._clock.true_us)
        return self._reply(entry)

    @property
    def promised(self) -> bool:
        """Whether it has answered reports that are not written as yet."""
        return bool(self._unwritten)

    def flush(self) -> None:
        """Write what was promised, and that somebody listens."""
        now_us, listened_us = self._clock.true_us, self._listened_us
        listens = listened_us is None or now_us - listened_us >= _LISTENING_US
        if self.away or not (listens or self._unwritten):
            return
        unwritten, self._unwritten = self._unwritten, {}
        # The real process writes every five seconds, this one only when it is looked at: what
        # lies between is no gap in hearing.
        between_us = 0 if listened_us is None else now_us - listened_us
        gap_seconds = self._runtime.limits.listening_gap_seconds + between_us / 1_000_000
        try:
            with self._runtime.begin() as uow:
                if listens:
                    note_listening(uow, gap_seconds)
                reports = [
                    answered(_plain(report), max(0.0, (now_us - at_us) / 1_000_000))
                    for _, (report, at_us) in sorted(unwritten.items())
                ]
                uow.contacts.store(reports, uow.now)
        except Interrupted:
            self._unwritten = {**unwritten, **self._unwritten}
            return
        if listens:
            self._listened_us = now_us

    def leave(self) -> None:
        """The api process ends; what it had promised half a second ago is written."""
        self.flush()
        self.away = True
        self._board.clear()
        self._listened_us = None

    def come_back(self) -> None:
        """It is started again, and listens."""
        self.away = False
        self.hears_since_us = self._clock.true_us
        self.flush()
        self.on_heard_again()

    def _heard(self, instance_id: str) -> None:
        """Remember the answer; after a silence, whoever watches for silence is told."""
        before_us, now_us = self.answered_us.get(instance_id), self._clock.true_us
        self.answered_us[instance_id] = now_us
        interval_us = 1_000_000 * self._runtime.limits.report_interval_seconds
        if before_us is None or now_us - before_us > 2 * interval_us:
            self.on_heard_again()

    def _steady(self, key: str, report: AgentReport) -> _Entry | None:
        """The entry that answers a report without news; None when it needs a transaction."""
        entry = self._board.get(key)
        if entry is None or report.facts or report.disk_full is not None:
            return None
        if not is_steady(entry, _plain(report)):
            return None
        if self._transactions.changed_since(entry.job_id, "board"):
            self._refresh(entry.job_id)
        found = self._board.get(key)
        timed = found is not None and found.directive.kind is DirectiveKind.DRAIN
        return None if timed else found

    def _refresh(self, job_id: UUID) -> None:
        """Read the directives of a changed job's machines, as the board's exchange does."""
        held = read_directives(self._runtime, [job_id])[job_id]
        self._transactions.mark(job_id, "board")
        for key in [key for key, entry in self._board.items() if entry.job_id == job_id]:
            entry = self._board[key]
            directive = held.get(entry.instance_id)
            if directive is None or directive.credential_hash != key:
                del self._board[key]
            elif directive.directive.version > entry.directive.version:
                entry.directive = directive.directive

    def _full(self, key: str, report: AgentReport) -> ReportReply:
        self.full_reports += 1
        # What crosses a process crosses it as JSON: the shapes must survive that.
        arrived = decode(AgentReport, encode(report))
        self._board.pop(key, None)
        try:
            with self._runtime.begin() as uow:
                reply = receive_agent_report(uow, self._runtime, key, arrived)
                found = uow.instances.get(UUID(report.instance_id))
                job_id = None if found is None else found.job_id
        except Interrupted as error:
            raise Unreachable from error
        if job_id is not None:
            progress = report.progress
            self._board[key] = _Entry(
                instance_id=UUID(report.instance_id),
                job_id=job_id,
                session_id=report.session_id,
                seq=report.seq,
                fence=report.fence,
                total_steps=None if progress is None else progress.total_steps,
                ack_fact_no=reply.ack_fact_no,
                directive=reply.directive,
                disk_full=report.disk_full is not None,
            )
        return reply

    def _reply(self, entry: _Entry) -> ReportReply:
        limits = self._runtime.limits
        return ReportReply(
            ack_fact_no=entry.ack_fact_no,
            lease_seconds=limits.agent_lease_seconds,
            next_report_seconds=limits.report_interval_seconds,
            directive=entry.directive,
        )


def _plain(report: AgentReport) -> SteadyReport:
    progress = report.progress
    return SteadyReport(
        instance_id=UUID(report.instance_id),
        session_id=report.session_id,
        seq=report.seq,
        fence=report.fence,
        phase=report.phase.value,
        step=None if progress is None else progress.step,
        total_steps=None if progress is None else progress.total_steps,
        metrics={} if progress is None else dict(progress.metrics),
        pace=None if progress is None else progress.pace,
    )
