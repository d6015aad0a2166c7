"""What one api process remembers of agents, so that a steady report costs no transaction.

Lives here: the memory, its answers, and its exchange with the database in steps. Whoever drives it
calls them: the api's event loop (`agents.report_cache_driver`) in real time, the simulator in
virtual time. Not here: any report that carries news, which goes through `receive_agent_report`
under its job's lock.

An answer renews the agent's lease, and the control plane may only declare a lease over by what is
written in the contacts. So an answer from memory is a promise to write it soon: every half second
in one statement. When writing has failed for ten seconds the memory stops answering (503), and the
agents' leases run: what is written is then never older than ten seconds against what was promised,
well within the minute that is added before a lease counts as over. The same exchange tells which
jobs have changed, whoever changed them, so a directive is never older than that either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from uuid import UUID

import orjson

from app.orchestration.directives.read_directives import JobDirectives, read_directives
from app.orchestration.directives.steady_reports import SteadyReport, answered, is_steady
from app.orchestration.frame.lost_rows import record_listening
from app.orchestration.frame.runtime import Runtime
from trainer.protocol.agent_report import AgentReport
from trainer.protocol.directive import Directive, DirectiveKind, ReportReply
from trainer.protocol.wire import encode

FLUSH_SECONDS = 0.5
PROMISE_SECONDS_MAX = 10.0
IDLE_SECONDS_MAX = 60.0
LISTENING_SECONDS = 5.0
_DRAIN_SECONDS_MIN = 0.5


class CacheSilent(Exception):
    """The cache cannot keep its promises just now and answers nobody (HTTP 503)."""


@dataclass(slots=True)
class CachedAgent:
    """One agent, under the digest of its credential. Instants are seconds of the driver's clock.

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
class ExchangeBatch:
    """What one exchange brings to the database.

    began: when it was made. listens: whether it says that this process hears agents. agents: whose
    reports these are. reports: with the instants of their answers. versions: of the oldest
    directive that is remembered for each job.
    """

    began: float
    listens: bool
    agents: tuple[str, ...]
    reports: list[tuple[SteadyReport, float]]
    versions: dict[UUID, int]


@dataclass(frozen=True, slots=True)
class DirectiveChanges:
    """What was read from the database: directives of jobs that had changed. read: since when."""

    read: float
    jobs: dict[UUID, JobDirectives] = field(default_factory=dict)


class AgentReportCache:
    """All methods but `exchange`, `read_jobs` and `now` belong to one thread.

    An exchange is `begin_exchange`, `exchange`, and then `finish_exchange` or `fail_exchange`; a
    refresh of marked jobs is `take_marked`, `read_jobs` and `take_in`. Agents may be answered
    between any two of them.
    """

    def __init__(
        self,
        runtime: Runtime,
        now: Callable[[], float],
        wake: Callable[[], None],
        idle_seconds: float = IDLE_SECONDS_MAX,
    ) -> None:
        """now: seconds of a clock that never runs backwards. wake: called when jobs are marked.

        idle_seconds: how long an agent that does not report is remembered.
        """
        self.runtime = runtime
        self.now = now
        self._wake = wake
        self._idle_seconds = idle_seconds
        self._entries: dict[str, CachedAgent] = {}
        self._of_job: dict[UUID, set[str]] = {}
        # In the order of answers, which is the order of writing: a set's would be chance.
        self._unwritten: dict[str, None] = {}
        self._marked: set[UUID] = set()
        self._kept_at = now()
        self._listened_at: float | None = None

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def promised(self) -> bool:
        """Whether agents were answered whose reports are not written yet."""
        return bool(self._unwritten)

    @property
    def marked(self) -> bool:
        """Whether jobs wait for a refresh."""
        return bool(self._marked)

    @property
    def job_ids(self) -> list[UUID]:
        """The jobs of all agents that are remembered."""
        return list(self._of_job)

    # --- answering ----------------------------------------------------------------------------

    def answer(
        self, credential_hash: str, report: SteadyReport
    ) -> tuple[bytes, UUID, Directive] | None:
        """The answer to a report without news, its job, and what it directs; None when it needs a
        transaction.

        Raises CacheSilent.
        """
        entry = self._entries.get(credential_hash)
        if entry is None or not is_steady(entry, report):
            return None
        now = self.now()
        if now - self._kept_at > PROMISE_SECONDS_MAX:
            raise CacheSilent
        entry.seq, entry.answered, entry.report = report.seq, now, report
        self._unwritten[credential_hash] = None
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
        entry = CachedAgent(
            instance_id=UUID(report.instance_id),
            job_id=job_id,
            session_id=report.session_id,
            seq=report.seq,
            fence=report.fence,
            total_steps=None if progress is None else progress.total_steps,
            ack_fact_no=reply.ack_fact_no,
            directive=reply.directive,
            drain_until=_drain_until(reply.directive, computed),
            answered=self.now(),
            disk_full=report.disk_full is not None,
        )
        if known is not None and known.directive.version > reply.directive.version:
            entry.directive, entry.drain_until = known.directive, known.drain_until
        if known is not None and _is_later(known, entry):
            # The report was late: the answer that was given since is still to be written.
            known.directive, known.drain_until = entry.directive, entry.drain_until
            known.ack_fact_no, known.reply = max(known.ack_fact_no, entry.ack_fact_no), None
        else:
            self._entries[credential_hash] = entry
            self._unwritten.pop(credential_hash, None)
        mates = self._of_job.setdefault(job_id, set())
        mates.add(credential_hash)
        if len(mates) > 1:
            # News of one machine changes what the others should do: tell them at once.
            self.mark((job_id,))

    def mark(self, job_ids: Iterable[UUID]) -> None:
        """Have the directives of these jobs read anew at once, where their agents are known."""
        known = [job_id for job_id in job_ids if job_id in self._of_job]
        if known:
            self._marked.update(known)
            self._wake()

    def _reply(self, entry: CachedAgent, now: float) -> bytes:
        if entry.drain_until is not None:
            seconds = max(_DRAIN_SECONDS_MIN, entry.drain_until - now)
            return self._encoded(entry, replace(entry.directive, drain_seconds=seconds))
        if entry.reply is None:
            entry.reply = self._encoded(entry, entry.directive)
        return entry.reply

    def _encoded(self, entry: CachedAgent, directive: Directive) -> bytes:
        limits = self.runtime.limits
        reply = ReportReply(
            ack_fact_no=entry.ack_fact_no,
            lease_seconds=limits.agent_lease_seconds,
            next_report_seconds=limits.report_interval_seconds,
            directive=directive,
        )
        return orjson.dumps(encode(reply))

    # --- the exchange with the database -------------------------------------------------------

    def take_marked(self) -> tuple[UUID, ...]:
        """The jobs to be read anew; they are marked no more."""
        marked = tuple(sorted(self._marked))
        self._marked.clear()
        return marked

    def begin_exchange(self) -> ExchangeBatch | None:
        """What is to be written, and asked; None when there is nothing."""
        began = self.now()
        self._forget_idle(began)
        listens = self._listened_at is None or began - self._listened_at >= LISTENING_SECONDS
        if not self._entries and not listens:
            self._kept_at = began
            return None
        written, self._unwritten = tuple(self._unwritten), {}
        reports = [
            (entry.report, entry.answered)
            for entry in map(self._entries.get, written)
            if entry is not None and entry.report is not None
        ]
        versions: dict[UUID, int] = {}
        for entry in self._entries.values():
            version = entry.directive.version
            versions[entry.job_id] = min(version, versions.get(entry.job_id, version))
        return ExchangeBatch(began, listens, written, reports, versions)

    def exchange(self, batch: ExchangeBatch) -> DirectiveChanges:
        """Write contacts, learn which jobs changed, and read their directives; from any thread."""
        gap_seconds = self.runtime.limits.listening_gap_seconds
        at, changed = self.now(), None
        with self.runtime.begin() as uow:
            if not batch.reports:
                changed = uow.contacts.still_listening(
                    batch.versions, gap_seconds if batch.listens else None
                )
            if changed is None:
                if batch.listens:
                    record_listening(uow, gap_seconds)
                now, at = uow.now, self.now()
                uow.contacts.store([answered(one, at - then) for one, then in batch.reports], now)
                changed = uow.contacts.changed_jobs(batch.versions)
        return self.read_jobs(changed) if changed else DirectiveChanges(at)

    def read_jobs(self, job_ids: Iterable[UUID]) -> DirectiveChanges:
        """Read the directives of these jobs; from any thread."""
        at = self.now()
        return DirectiveChanges(at, read_directives(self.runtime, job_ids))

    def finish_exchange(self, batch: ExchangeBatch, changes: DirectiveChanges) -> None:
        """The batch is written: its promises are kept."""
        self.take_in(changes)
        self._kept_at = batch.began
        if batch.listens:
            self._listened_at = batch.began

    def fail_exchange(self, batch: ExchangeBatch) -> None:
        """The batch could not be written, or whether it was is not known: it is written again."""
        self._unwritten = dict.fromkeys((*batch.agents, *self._unwritten))

    def take_in(self, changes: DirectiveChanges) -> None:
        """Take newer directives over; agents whose credential was revoked are forgotten."""
        for job_id, directives in changes.jobs.items():
            for credential_hash in tuple(self._of_job.get(job_id, ())):
                entry = self._entries[credential_hash]
                held = directives.get(entry.instance_id)
                if held is None or held.credential_hash != credential_hash:
                    self._forget(credential_hash)
                elif held.directive.version > entry.directive.version:
                    entry.directive, entry.reply = held.directive, None
                    entry.drain_until = _drain_until(held.directive, changes.read)

    def _forget_idle(self, now: float) -> None:
        idle = [
            credential_hash
            for credential_hash, entry in self._entries.items()
            if now - entry.answered > self._idle_seconds and credential_hash not in self._unwritten
        ]
        for credential_hash in idle:
            self._forget(credential_hash)

    def _forget(self, credential_hash: str) -> None:
        entry = self._entries.pop(credential_hash)
        self._unwritten.pop(credential_hash, None)
        mates = self._of_job[entry.job_id]
        mates.discard(credential_hash)
        if not mates:
            del self._of_job[entry.job_id]


def _is_later(known: CachedAgent, entry: CachedAgent) -> bool:
    """Whether a report after this one has been answered from memory."""
    return known.session_id == entry.session_id and known.seq > entry.seq


def _drain_until(directive: Directive, computed: float) -> float | None:
    if directive.kind is not DirectiveKind.DRAIN or directive.drain_seconds is None:
        return None
    return computed + directive.drain_seconds
