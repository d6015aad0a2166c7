"""Jobs, their history and what is told of their training, in PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import itemgetter
from typing import Any
from uuid import UUID

from sqlalchemy import select

from app.domain.launch_limits.limit_use import LimitUse
from app.domain.lifecycle.entities import CheckpointRecord, Job
from app.domain.market.offer import Market
from app.domain.spec.spec_document import SpecDocument
from app.storage.jobs import claim_statements, hot_statements, submission_batch
from app.storage.jobs import job_statements as statements
from app.storage.jobs.event_rows import EventRecord, PhaseRecord, insert_events
from app.storage.jobs.job_submission import KnownJob, Submission
from app.storage.jobs.queue_limits import QUEUE_LIMITS, full_queue
from app.storage.money.money_repository import Payer
from app.storage.schema import tables
from app.storage.session.due_times import EPOCH
from app.storage.session.ready_statement import Ready
from app.storage.session.record_session import RecordSession
from app.storage.session.statement_runner import Statement


@dataclass(frozen=True)
class QueuedJob:
    """A job that may be claimed, as it stands unlocked, with what its placement depends on.

    next_fence, moving_launch_id, moving_until_at: as in its row; they tell whether it has changed
    since. claimed_at: when its newest attempt began, if it had any.
    """

    job_id: UUID
    project_id: UUID
    budget_id: UUID
    spec: SpecDocument
    market_mode: Market
    node_count: int
    next_fence: int
    moving_launch_id: UUID | None
    moving_until_at: datetime | None
    submitted_at: datetime
    deadline_at: datetime | None
    claimed_at: datetime | None = None


_jobs = tables.jobs


class JobRepository:
    """Jobs, their history and what is told of their training."""

    def __init__(self, session: RecordSession, look_at_clock: Callable[[datetime], None]) -> None:
        """look_at_clock: told the database's clock whenever a lock's statement reads it."""
        self._session = session
        self._look_at_clock = look_at_clock
        self._events: list[EventRecord] = []
        session.append_inserts_with_flush(self._waiting_events)

    def submit(self, submission: Submission) -> bool:
        """Store a new job; False, and nothing stored, when its name or key is taken, or the queue
        has no room for it.
        """
        found = self._session.connection().exec_driver_sql(
            submission_batch.SUBMIT_JOBS, submission_batch.submissions_parameter([submission])
        )
        return found.first() is not None

    def full_queue(self, project_id: UUID) -> LimitUse | None:
        """The limit of queued jobs that lets no other one in; None where there is room."""
        row = self._session.row(QUEUE_LIMITS, {"project_id": project_id})
        return None if row is None else full_queue(row)

    def known_job(self, project_id: UUID, idempotency_key: str) -> KnownJob | None:
        """The job that an idempotency key has made."""
        asked = {"project_id": project_id, "key": idempotency_key}
        row = self._session.row(hot_statements.KNOWN_JOB, asked)
        return None if row is None else KnownJob(*row)

    def taken_names(self, project_id: UUID, names: Sequence[str]) -> set[str]:
        """Which of the names are in use."""
        statement = select(_jobs.c.name).where(
            _jobs.c.project_id == project_id, _jobs.c.name.in_(names)
        )
        return set(self._session.execute(statement).scalars())

    def lock(self, job_id: UUID, *, skip_locked: bool = False) -> Job | None:
        """The job under a row lock, re-read even when this session has it already.

        Who only refers to the job, as a log's first piece does, need not wait for it.
        """
        statement = claim_statements.LOCK_OR_SKIP if skip_locked else claim_statements.LOCK
        row = self._session.row(statement, {"this_job": job_id})
        if row is None:
            return None
        self._look_at_clock(row[-1])
        return self._session.hold(Job, row, again=True)

    def get(self, job_id: UUID) -> Job | None:
        """The job without a lock."""
        return self._session.get(Job, job_id)

    def ready(self, now: datetime, limit: int, latest: datetime | None = None) -> list[QueuedJob]:
        """Claimable jobs in queue order: never looked at, or whose next look is due.

        latest: no look is set for later than that; one that is was set by a clock that went back.
        """
        given = {"by": now, "at_most": limit}
        found = self._session.rows(claim_statements.READY, {"at_most": limit})
        found += self._session.rows(claim_statements.WAITED, given)
        if latest is not None and len(found) < limit:
            far = {"latest": latest, "at_most": limit}
            found += self._session.rows(claim_statements.FAR_AHEAD, far)
        ranked = sorted(found, key=itemgetter(0, 1))[:limit]
        return [
            QueuedJob(job_id, project_id, budget_id, spec, Market(market), *others)
            for _, job_id, project_id, budget_id, spec, market, *others in ranked
        ]

    def next_ready_at(self, latest: datetime | None = None) -> datetime | None:
        """When the first waiting job is to be looked at; the epoch when one is ready now.

        latest: as in `ready`.
        """
        if self._session.row(claim_statements.ANY_READY) is not None:
            return EPOCH
        waiting = self._session.row(claim_statements.WAITING)
        if waiting is None or waiting[0] is None:
            return None
        first: datetime = waiting[0]
        return EPOCH if latest is not None and waiting[1] > latest else first

    def due_timer_ids(self, now: datetime, limit: int) -> list[UUID]:
        """Jobs whose `timer_at` has come, earliest first."""
        return self._ids(statements.DUE_TIMERS, now, limit)

    def next_timer_at(self) -> datetime | None:
        """The earliest `timer_at`."""
        return self._session.instant(statements.FIRST_TIMER)

    def wait_together(
        self, job: Job, claimable_at: datetime, reason: str, project_id: UUID | None = None
    ) -> int:
        """Give every job that would be looked at for the same need the same verdict.

        Those with machines on hold need fewer; those that are locked are left alone. project_id:
        of this project alone.
        """
        given = {
            "by": job.updated_at,
            "of_key": job.capacity_key,
            "of_project": project_id,
            "of_market": job.market_mode,
            "this_job": job.id,
            "next_look_at": claimable_at,
            "why": reason,
        }
        return len(self._session.rows(claim_statements.WAIT_TOGETHER, given))

    def promised_ids(self, now: datetime, latest: datetime, limit: int) -> list[UUID]:
        """Live jobs with a deadline whose slack is to be looked at, by id.

        latest: no look is set for later than that; one that is was set by a clock that ran ahead,
        and is due at once. So it is of every other look.
        """
        given = {"by": now, "latest": latest, "at_most": limit}
        return self._session.ids(statements.PROMISED, given)

    def next_promise_at(self, latest: datetime) -> datetime | None:
        """When the slack of the first such job is to be looked at; the epoch for a new one."""
        return self._session.instant(statements.FIRST_PROMISE, {"latest": latest})

    def movable_ids(self, now: datetime, latest: datetime, limit: int) -> list[UUID]:
        """Jobs on spot machines, or on their way to others, that are to be looked at, by id."""
        given = {"by": now, "latest": latest, "at_most": limit}
        return self._session.ids(statements.MOVABLE, given)

    def next_move_at(self, latest: datetime) -> datetime | None:
        """When the first such job is to be looked at; the epoch for a new one."""
        return self._session.instant(statements.FIRST_MOVE, {"latest": latest})

    def over_budget(self, limit: int) -> list[Payer]:
        """Jobs that work, or wait with machines, and have reached their own or project's cap."""
        found = self._session.rows(statements.OVER_BUDGET, {"at_most": limit})
        return [Payer(*row) for row in found]

    def cost_closable_ids(self, limit: int) -> list[UUID]:
        """Ended jobs whose cost is open while the bills of all their instances are final, by id."""
        return self._session.ids(statements.CLOSABLE, {"at_most": limit})

    def add_event(self, event: EventRecord) -> None:
        """Append to the history, with the transaction's other lines in one statement."""
        self._events.append(event)

    def _waiting_events(self) -> Iterator[Statement]:
        waiting, self._events = self._events, []
        return insert_events(waiting)

    def add_phase(self, phase: PhaseRecord) -> None:
        """Record a phase; a replayed one changes nothing."""
        self._session.rows(statements.ADD_PHASE, vars(phase))

    def add_metric_points(
        self, job_id: UUID, fence: int, points: Sequence[tuple[int, datetime, dict[str, float]]]
    ) -> None:
        """Record (step, at, metrics); what a known step is told of besides joins its metrics."""
        rows: list[dict[str, Any]] = [
            {"job_id": job_id, "fence": fence, "step": step, "at": at, "metrics": metrics}
            for step, at, metrics in points
        ]
        self._session.write(statements.ADD_POINT, rows)

    def add_checkpoint(self, checkpoint: CheckpointRecord) -> bool:
        """Record a committed checkpoint; False when it was known."""
        key = (checkpoint.job_id, checkpoint.fence, checkpoint.step)
        if self._session.get(CheckpointRecord, *key) is not None:
            return False
        self._session.add(checkpoint)
        return True

    def due_pruning_ids(self, now: datetime, limit: int) -> list[UUID]:
        """Jobs whose checkpoints are to be pruned now, earliest due first."""
        return self._ids(statements.DUE_PRUNING, now, limit)

    def next_pruning_at(self) -> datetime | None:
        """The earliest `prune_at`."""
        return self._session.instant(statements.FIRST_PRUNING)

    def standing_checkpoints(self, job_id: UUID) -> list[CheckpointRecord]:
        """Known checkpoints that are neither pruned nor final, by fence then step."""
        return self._session.all(CheckpointRecord, statements.STANDING, {"of_job": job_id})

    def final_checkpoints(self, job_id: UUID) -> list[tuple[int, int]]:
        """(fence, step) of known final checkpoints, in order."""
        found = self._session.rows(statements.FINAL, {"of_job": job_id})
        return [(fence, step) for fence, step in found]

    def saved_starts(
        self, job_id: UUID, after_fence: int
    ) -> dict[int, tuple[int | None, int | None]]:
        """(parent's fence, parent's step) of each later attempt that saved a checkpoint."""
        given = {"of_job": job_id, "after": after_fence}
        found = self._session.rows(statements.SAVED_STARTS, given)
        return {fence: (parent_fence, step) for fence, parent_fence, step in found}

    def _ids(self, statement: Ready, now: datetime, limit: int) -> list[UUID]:
        return self._session.ids(statement, {"by": now, "at_most": limit})
