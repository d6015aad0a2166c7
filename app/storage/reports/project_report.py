"""Projects with what they run and have spent this month, for people.

Not here: one project's costs by day (`period_cost_report`), or its keys (`key_repository`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import BigInteger, Engine, Select, cast, func, select

from app.domain.lifecycle.job import TERMINAL_JOB_STATES, JobState
from app.domain.projects.project_rules import PROJECTS_MAX
from app.storage.schema import tables
from app.storage.schema.money_tables import cost_rollups

_PROJECTS: Final = tables.projects
_JOBS: Final = tables.jobs


@dataclass(frozen=True)
class ProjectSummary:
    """One project. running, queued: its jobs in these states.

    spent_microusd: booked for its machines since `since`, a UTC day.
    """

    id: UUID
    name: str
    archived_at: datetime | None
    rules_version: int
    running: int
    queued: int
    spent_microusd: int


class ProjectReports:
    """Reports on projects; each is one read on a connection of its own."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def projects(self, since: date, ids: Collection[UUID] | None) -> list[ProjectSummary]:
        """Projects by name, archived ones last: those of the ids, or all."""
        with self._engine.connect() as connection:
            rows = connection.execute(_statement(since, ids)).all()
        return [ProjectSummary(*row) for row in rows]


def _statement(since: date, ids: Collection[UUID] | None) -> Select[Any]:
    live = (
        select(
            _JOBS.c.project_id,
            func.count().filter(_JOBS.c.state == JobState.RUNNING).label("running"),
            func.count().filter(_JOBS.c.state == JobState.QUEUED).label("queued"),
        )
        .where(_JOBS.c.state.not_in(sorted(TERMINAL_JOB_STATES)))
        .group_by(_JOBS.c.project_id)
        .subquery()
    )
    # For each project by itself: their rows of a month are read by the index of project and day.
    spent = (
        select(func.sum(cost_rollups.c.amount_microusd))
        .where(cost_rollups.c.project_id == _PROJECTS.c.id, cost_rollups.c.day >= since)
        .scalar_subquery()
    )
    statement = (
        select(
            _PROJECTS.c.id,
            _PROJECTS.c.name,
            _PROJECTS.c.archived_at,
            func.coalesce(_PROJECTS.c.rules_version, 0),
            func.coalesce(live.c.running, 0),
            func.coalesce(live.c.queued, 0),
            cast(func.coalesce(spent, 0), BigInteger),
        )
        .outerjoin(live, live.c.project_id == _PROJECTS.c.id)
        .order_by(_PROJECTS.c.archived_at.is_not(None), _PROJECTS.c.name)
        .limit(PROJECTS_MAX)
    )
    return statement if ids is None else statement.where(_PROJECTS.c.id.in_(ids))
