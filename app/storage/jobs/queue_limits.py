"""The limits of queued jobs, of a project and of the deployment, with the jobs that count.

Asked only once a submission was not stored. Not here: the statement that keeps to them
(`submission_batch`).
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import bindparam, func, select, text

from app.domain.launch_limits.launch_limits import parse_limits
from app.domain.launch_limits.limit_use import LimitUse, use_of_queue
from app.domain.lifecycle.job import JobState
from app.storage.schema import tables
from app.storage.session.ready_statement import Ready

_PROJECTS, _LIMITS, _JOBS = tables.projects.c, tables.deployment_limits.c, tables.jobs.c
# As text, so that the index of jobs that have not ended serves.
QUEUED_JOBS: Final = (
    select(func.count())
    .select_from(tables.jobs)
    .where(text(f"jobs.{tables.one_of('state', (JobState.QUEUED,))}"))
)
QUEUE_LIMITS: Final = Ready(
    select(
        _PROJECTS.name,
        _PROJECTS.rules["limits"],
        QUEUED_JOBS.where(_JOBS.project_id == bindparam("project_id")).scalar_subquery(),
        _LIMITS.limits,
        QUEUED_JOBS.scalar_subquery(),
    )
    .select_from(tables.projects.outerjoin(tables.deployment_limits, _LIMITS.id == 1))
    .where(_PROJECTS.id == bindparam("project_id"))
)


def full_queue(row: tuple[Any, ...]) -> LimitUse | None:
    """The limit that lets no other job in; None where there is room."""
    project, own, in_project, shared, in_all = row
    uses = (
        *use_of_queue(parse_limits(own or {}), in_project, project),
        *use_of_queue(parse_limits(shared or {}), in_all, None),
    )
    return next((one for one in uses if one.used >= one.most), None)
