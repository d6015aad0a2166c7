"""Estimates of jobs in PostgreSQL, and what came of them. Not here: how they are made."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from sqlalchemy import Float, case, cast, exists, func, or_, select, text
from sqlalchemy.dialects.postgresql import insert as upsert

from app.domain.estimate.calibration import EstimateOutcome
from app.domain.lifecycle.job import (
    ATTEMPT_JOB_STATES,
    CLAIMABLE_JOB_STATES,
    TERMINAL_JOB_STATES,
    JobState,
)
from app.domain.spec.spec_document import SpecDocument
from app.storage.schema.job_tables import budgets, job_estimates, jobs
from app.storage.schema.schema import one_of
from app.storage.session.record_session import Repository


@dataclass(frozen=True)
class KeptEstimate:
    """Figures of the product's own way to rent; all None where nothing could be said.

    made_at: the moment that it was made for, and that its finish counts from. `finish_*_seconds`
    are None where the job might never end.
    """

    job_id: UUID
    made_at: datetime
    cost_p50_microusd: int | None = None
    cost_p90_microusd: int | None = None
    finish_p50_seconds: float | None = None
    finish_p90_seconds: float | None = None
    deadline_chance: float | None = None
    budget_chance: float | None = None


@dataclass(frozen=True)
class Unestimated:
    """A job without an estimate. asked_at: when it was last asked for in vain."""

    job_id: UUID
    project_id: UUID
    spec: SpecDocument
    submitted_at: datetime
    deadline_at: datetime | None
    asked_at: datetime | None = None


LATE_MAX: Final = timedelta(hours=1)
"""After so long the prices of now no longer tell those at a job's beginning."""

TRIED_AGAIN: Final = timedelta(minutes=5)
"""A job that nothing fits may be estimated when something does; each wait is as long as all before,
so that thousands of jobs which wait for days ask for little."""

_kept, _job, _budget = job_estimates.c, jobs.c, budgets.c
_ASKED: Final = (
    _job.id.label("job_id"),
    _job.project_id,
    _job.spec,
    _job.submitted_at,
    _job.deadline_at,
)
_DUE_AGAIN: Final = _kept.made_at + func.greatest(TRIED_AGAIN, _kept.made_at - _job.submitted_at)
_IN_VAIN: Final = (
    _kept.cost_p50_microusd.is_(None),
    _job.state.in_(sorted({*CLAIMABLE_JOB_STATES, *ATTEMPT_JOB_STATES})),
    _job.started_at.is_(None),
    _job.spec.has_key("estimate"),
    or_(_job.deadline_at.is_(None), _job.deadline_at > _DUE_AGAIN),
)
_OPEN: Final = text(
    f"(NOT ({one_of('jobs.state', TERMINAL_JOB_STATES)}) "
    "OR (jobs.ended_at IS NOT NULL AND jobs.cost_final_at IS NULL))"
)
"""Also a job that was over at once: its costs are not final before a while. In the words of two
indexes, which hold few jobs."""


class KeptEstimateRows(Repository):
    """One row for each job."""

    def missing(self, limit: int, now: datetime) -> list[Unestimated]:
        """Jobs that have none yet, and are not older than tells of their beginning; oldest first.

        A job that could not be estimated is told again after a while, if its spec says its work.
        """
        untrained = (_job.state == JobState.QUEUED) & _job.started_at.is_(None)
        has_one = exists().where(_kept.job_id == _job.id)
        fresh = ~has_one & _OPEN & (untrained | (_job.submitted_at > now - LATE_MAX))
        long_ago = case((_job.submitted_at <= now - LATE_MAX, _job.submitted_at))
        rows = self._session.execute(
            select(*_ASKED, long_ago.label("asked_at"))
            .where(fresh)
            .order_by(_job.submitted_at, _job.id)
            .limit(limit)
        ).all()
        if len(rows) < limit:
            again = self._session.execute(
                select(*_ASKED, _kept.made_at.label("asked_at"))
                .join(job_estimates, _kept.job_id == _job.id)
                .where(*_IN_VAIN, now >= _DUE_AGAIN)
                .order_by(_kept.made_at, _job.id)
                .limit(limit - len(rows))
            ).all()
            rows = [*rows, *again]
        return [Unestimated(**row._mapping) for row in rows]

    def next_try_at(self) -> datetime | None:
        """When a job that could not be estimated is due again."""
        due: datetime | None = self._session.execute(
            select(func.min(_DUE_AGAIN)).join(jobs, _job.id == _kept.job_id).where(*_IN_VAIN)
        ).scalar_one()
        return due

    def keep(self, estimate: KeptEstimate) -> bool:
        """Remember it, unless there are figures already.

        Waits for nobody: False, and nothing is written, while another transaction holds the job.
        """
        # The foreign key takes this lock in any case, but waits for it.
        held = select(_job.id).where(_job.id == estimate.job_id)
        held = held.with_for_update(read=True, key_share=True, skip_locked=True)
        if self._session.execute(held).first() is None:
            return False
        values = asdict(estimate)
        told = upsert(job_estimates).values(values)
        self._session.execute(
            told.on_conflict_do_update(
                index_elements=[_kept.job_id],
                set_={name: told.excluded[name] for name in values if name != "job_id"},
                where=_kept.cost_p50_microusd.is_(None),
            )
        )
        return True

    def of(self, job_id: UUID) -> KeptEstimate | None:
        """A job's."""
        found = self._session.execute(select(*_kept).where(_kept.job_id == job_id)).first()
        return None if found is None else KeptEstimate(**found._mapping)

    def outcomes(self, project_id: UUID, limit: int) -> list[EstimateOutcome]:
        """Succeeded jobs of a project with an estimate and a final cost, newest first."""
        # From the moment that the estimate was made for: the queue before it is no part of it.
        seconds = cast(func.extract("epoch", _job.ended_at - _kept.made_at), Float)
        rows = self._session.execute(
            select(
                _job.id.label("job_id"),
                _job.name.label("job_name"),
                _kept.cost_p50_microusd,
                _kept.cost_p90_microusd,
                _kept.finish_p50_seconds,
                _kept.finish_p90_seconds,
                _budget.spent_microusd.label("cost_microusd"),
                seconds.label("seconds"),
            )
            .join(job_estimates, _kept.job_id == _job.id)
            .join(budgets, _budget.job_id == _job.id)
            .where(
                _job.project_id == project_id,
                _job.state == JobState.SUCCEEDED,
                _job.cost_final_at.is_not(None),
                _kept.cost_p50_microusd.is_not(None),
            )
            .order_by(_job.ended_at.desc(), _job.id)
            .limit(limit)
        )
        return [EstimateOutcome(**row._mapping) for row in rows]
