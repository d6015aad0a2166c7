"""Jobs, their history and what is told of their training, in PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import and_, bindparam, func, insert, or_, select, text, update
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.orm import Session

from app.adapters.postgres import hot_statements, tables
from app.adapters.postgres import mapping as _mapping  # binds the records  # noqa: F401
from app.domain.entities import Checkpoint, Job
from app.domain.job import CLAIMABLE_JOB_STATES, JobState
from app.ports.job_submission import KnownJob, Submission
from app.ports.unit_of_work import EventRecord, Payer, PhaseRecord

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_jobs = tables.jobs
_points = tables.checkpoints
_promised = text(tables.PROMISED_JOB)
_claimable = text(tables.one_of("state", CLAIMABLE_JOB_STATES))
# Built once: every transaction on a job begins with one of these.
_ONE = select(Job).where(_jobs.c.id == bindparam("this_job"))
_LOCK = _ONE.with_for_update(key_share=True).execution_options(populate_existing=True)
_LOCK_OR_SKIP = _ONE.with_for_update(skip_locked=True, key_share=True).execution_options(
    populate_existing=True
)


class JobRepository:
    """Implements `app.ports.unit_of_work.Jobs`."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._events: list[dict[str, Any]] = []

    def submit(self, submission: Submission) -> bool:
        """Store a new job; False, and nothing stored, when its name or key is taken."""
        found = self._session.connection().exec_driver_sql(
            hot_statements.SUBMIT_JOB, vars(submission)
        )
        return found.first() is not None

    def known_job(self, project_id: UUID, idempotency_key: str) -> KnownJob | None:
        """The job that an idempotency key has made."""
        row = (
            self._session.connection()
            .exec_driver_sql(
                hot_statements.KNOWN_JOB, {"project_id": project_id, "key": idempotency_key}
            )
            .first()
        )
        return None if row is None else KnownJob(*row)

    def taken_names(self, project_id: UUID, names: Sequence[str]) -> set[str]:
        """Which of the names are in use."""
        statement = select(_jobs.c.name).where(
            _jobs.c.project_id == project_id, _jobs.c.name.in_(names)
        )
        return set(self._session.scalars(statement))

    def lock(self, job_id: UUID, *, skip_locked: bool = False) -> Job | None:
        """The job under a row lock, re-read even when this session has it already.

        Who only refers to the job, as a log's first piece does, need not wait for it.
        """
        statement = _LOCK_OR_SKIP if skip_locked else _LOCK
        return self._session.scalars(statement, {"this_job": job_id}).one_or_none()

    def get(self, job_id: UUID) -> Job | None:
        """The job without a lock."""
        return self._session.get(Job, job_id)

    def ready_ids(self, now: datetime, limit: int) -> list[UUID]:
        """Claimable jobs in queue order: never looked at, or whose next look is due."""
        rank = (_jobs.c.queue_rank_at, _jobs.c.id)
        found: list[tuple[datetime, UUID]] = []
        # Two statements, for each has its own index: the first stops after `limit` rows.
        for condition in (_jobs.c.claimable_at.is_(None), _jobs.c.claimable_at <= now):
            statement = select(*rank).where(_claimable, condition).order_by(*rank).limit(limit)
            found += [(row.queue_rank_at, row.id) for row in self._session.execute(statement)]
        return [job_id for _, job_id in sorted(found)[:limit]]

    def next_ready_at(self) -> datetime | None:
        """When the first waiting job is to be looked at; the epoch when one is ready now."""
        ready = select(_jobs.c.id).where(_claimable, _jobs.c.claimable_at.is_(None)).limit(1)
        if self._session.scalars(ready).first() is not None:
            return _EPOCH
        waiting = select(func.min(_jobs.c.claimable_at)).where(
            _claimable, _jobs.c.claimable_at.is_not(None)
        )
        first: datetime | None = self._session.scalar(waiting)
        return first

    def due_timer_ids(self, now: datetime, limit: int) -> list[UUID]:
        """Jobs whose `timer_at` has come, earliest first."""
        statement = (
            select(_jobs.c.id)
            .where(_jobs.c.timer_at <= now)
            .order_by(_jobs.c.timer_at, _jobs.c.id)
            .limit(limit)
        )
        return list(self._session.scalars(statement))

    def next_timer_at(self) -> datetime | None:
        """The earliest `timer_at`."""
        first: datetime | None = self._session.scalar(
            select(func.min(_jobs.c.timer_at)).where(_jobs.c.timer_at.is_not(None))
        )
        return first

    def wait_together(
        self, job: Job, capacity_key: str, claimable_at: datetime, reason: str
    ) -> int:
        """Give every job that would be looked at for the same need the same verdict.

        Those with machines on hold need fewer; those that are locked are left alone.
        """
        self._session.flush()
        others = (
            select(_jobs.c.id)
            .where(
                _claimable,
                or_(_jobs.c.claimable_at.is_(None), _jobs.c.claimable_at <= job.updated_at),
                _jobs.c.capacity_key == capacity_key,
                _jobs.c.market_mode == job.market_mode,
                _jobs.c.hold_until_at.is_(None),
                _jobs.c.id != job.id,
            )
            .order_by(_jobs.c.id)
            .with_for_update(skip_locked=True)
        )
        ids = list(self._session.scalars(others))
        if ids:
            self._session.execute(
                update(_jobs)
                .where(_jobs.c.id.in_(ids))
                .values(claimable_at=claimable_at, wait_reason=reason)
            )
        return len(ids)

    def promised_ids(self, now: datetime, limit: int) -> list[UUID]:
        """Live jobs with a deadline whose slack is to be looked at, by id."""
        statement = (
            select(_jobs.c.id)
            .where(_promised, or_(_jobs.c.slack_look_at.is_(None), _jobs.c.slack_look_at <= now))
            .order_by(_jobs.c.id)
            .limit(limit)
        )
        return list(self._session.scalars(statement))

    def next_promise_at(self) -> datetime | None:
        """When the slack of the first such job is to be looked at; the epoch for a new one."""
        due = func.coalesce(_jobs.c.slack_look_at, _EPOCH)
        found: datetime | None = self._session.scalar(select(func.min(due)).where(_promised))
        return found

    def over_budget(self, limit: int) -> list[Payer]:
        """Jobs that work, or wait with machines, and have reached their own or project's cap."""
        own, project = tables.budgets.alias(), tables.budgets.alias()
        statement = (
            select(_jobs.c.project_id, _jobs.c.budget_id, _jobs.c.id)
            .join(own, own.c.id == _jobs.c.budget_id)
            .outerjoin(
                project, (project.c.project_id == _jobs.c.project_id) & project.c.job_id.is_(None)
            )
            .where(
                or_(
                    _jobs.c.state.in_([JobState.STARTING, JobState.RUNNING]),
                    and_(_claimable, own.c.reserved_microusd > 0),
                ),
                or_(
                    *(
                        budget.c.spent_microusd + budget.c.reserved_microusd
                        >= budget.c.cap_microusd
                        for budget in (own, project)
                    )
                ),
            )
            .order_by(_jobs.c.id)
            .limit(limit)
        )
        return [Payer(*row) for row in self._session.execute(statement)]

    def cost_closable_ids(self, limit: int) -> list[UUID]:
        """Ended jobs whose cost is open while the bills of all their instances are final, by id."""
        instances = tables.instances
        unfinal = select(instances.c.id).where(
            instances.c.job_id == _jobs.c.id, instances.c.cost_final_at.is_(None)
        )
        statement = (
            select(_jobs.c.id)
            .where(
                _jobs.c.ended_at.is_not(None), _jobs.c.cost_final_at.is_(None), ~unfinal.exists()
            )
            .order_by(_jobs.c.id)
            .limit(limit)
        )
        return list(self._session.scalars(statement))

    def add_event(self, event: EventRecord) -> None:
        """Append to the history, with the transaction's other lines in one statement."""
        self._events.append(vars(event))

    def write_events(self) -> None:
        """Send the lines that wait."""
        if self._events:
            rows, self._events = self._events, []
            self._session.execute(insert(tables.events), rows)

    def add_phase(self, phase: PhaseRecord) -> None:
        """Record a phase; a replayed one changes nothing."""
        self._session.execute(upsert(tables.phases).values(vars(phase)).on_conflict_do_nothing())

    def add_metric_points(
        self, job_id: UUID, fence: int, points: Sequence[tuple[int, datetime, dict[str, float]]]
    ) -> None:
        """Record (step, at, metrics); a replayed point changes nothing."""
        rows: list[dict[str, Any]] = [
            {"job_id": job_id, "fence": fence, "step": step, "at": at, "metrics": metrics}
            for step, at, metrics in points
        ]
        if rows:
            statement = upsert(tables.metric_points).values(rows).on_conflict_do_nothing()
            self._session.execute(statement)

    def add_checkpoint(self, checkpoint: Checkpoint) -> bool:
        """Record a committed checkpoint; False when it was known."""
        known = self._session.get(
            Checkpoint, (checkpoint.job_id, checkpoint.fence, checkpoint.step)
        )
        if known is not None:
            return False
        self._session.add(checkpoint)
        return True

    def due_pruning_ids(self, now: datetime, limit: int) -> list[UUID]:
        """Jobs whose checkpoints are to be pruned now, earliest due first."""
        statement = (
            select(_jobs.c.id)
            .where(_jobs.c.prune_at <= now)
            .order_by(_jobs.c.prune_at, _jobs.c.id)
            .limit(limit)
        )
        return list(self._session.scalars(statement))

    def next_pruning_at(self) -> datetime | None:
        """The earliest `prune_at`."""
        first: datetime | None = self._session.scalar(
            select(func.min(_jobs.c.prune_at)).where(_jobs.c.prune_at.is_not(None))
        )
        return first

    def standing_checkpoints(self, job_id: UUID) -> list[Checkpoint]:
        """Known checkpoints that are neither pruned nor final, by fence then step."""
        statement = select(Checkpoint).where(
            _points.c.job_id == job_id, _points.c.pruned_at.is_(None), ~_points.c.final
        )
        return list(self._session.scalars(statement.order_by(_points.c.fence, _points.c.step)))

    def final_checkpoints(self, job_id: UUID) -> list[tuple[int, int]]:
        """(fence, step) of known final checkpoints, in order."""
        place = (_points.c.fence, _points.c.step)
        statement = select(*place).where(_points.c.job_id == job_id, _points.c.final)
        return [(row.fence, row.step) for row in self._session.execute(statement.order_by(*place))]

    def saved_starts(
        self, job_id: UUID, after_fence: int
    ) -> dict[int, tuple[int | None, int | None]]:
        """(parent's fence, parent's step) of each later attempt that saved a checkpoint."""
        statement = (
            select(_points.c.fence, _points.c.parent_fence, _points.c.parent_step)
            .where(_points.c.job_id == job_id, _points.c.fence > after_fence)
            .ext(distinct_on(_points.c.fence))
            .order_by(_points.c.fence, _points.c.step)
        )
        return {
            row.fence: (row.parent_fence, row.parent_step)
            for row in self._session.execute(statement)
        }
