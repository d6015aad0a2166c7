"""Estimates of jobs in PostgreSQL, and what came of them. Not here: how they are made."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any
from uuid import UUID

from sqlalchemy import Float, cast, exists, func, select
from sqlalchemy.dialects.postgresql import insert as upsert

from app.adapters.postgres.job_tables import budgets, job_estimates, jobs
from app.adapters.postgres.record_session import RecordSession
from app.domain.calibration import Borne
from app.domain.job import JobState
from app.ports.kept_estimates import KeptEstimate

_kept, _job, _budget = job_estimates.c, jobs.c, budgets.c


class KeptEstimateRows:
    """Implements `app.ports.kept_estimates.KeptEstimates`."""

    def __init__(self, session: RecordSession) -> None:
        self._session = session

    def missing(self, limit: int) -> list[tuple[UUID, UUID, dict[str, Any]]]:
        """(job, its project, its stored spec) that wait for their first machines and have none yet.

        Oldest first. One that has trained is left out: what is left of it is not what it takes.
        """
        has_one = exists().where(_kept.job_id == _job.id)
        rows = self._session.execute(
            select(_job.id, _job.project_id, _job.spec)
            .where(_job.state == JobState.QUEUED, _job.started_at.is_(None), ~has_one)
            .order_by(_job.submitted_at, _job.id)
            .limit(limit)
        )
        return [(row.id, row.project_id, row.spec) for row in rows]

    def keep(self, estimate: KeptEstimate) -> None:
        """Remember it, unless there is one."""
        values = asdict(estimate)
        self._session.execute(upsert(job_estimates).values(values).on_conflict_do_nothing())

    def of(self, job_id: UUID) -> KeptEstimate | None:
        """A job's."""
        found = self._session.execute(select(*_kept).where(_kept.job_id == job_id)).first()
        return None if found is None else KeptEstimate(**found._mapping)

    def borne(self, project_id: UUID, limit: int) -> list[Borne]:
        """Succeeded jobs of a project with an estimate and a final cost, newest first."""
        seconds = cast(func.extract("epoch", _job.ended_at - _job.submitted_at), Float)
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
        return [Borne(**row._mapping) for row in rows]
