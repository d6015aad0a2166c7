"""Statements about jobs and their checkpoints, each built once: what is due, and what is stored.

Not here: the claim of the queue and the lock of a job (`claim_statements`), or running a statement
(`job_repository`).
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BindParameter, Column, TextClause, and_, bindparam, func, or_, select, text
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.dialects.postgresql import insert as upsert

from app.domain.launch_limits.monthly_budget import DEPLOYMENT_PAYER, AtFull
from app.domain.lifecycle.job import CLAIMABLE_JOB_STATES, JobState
from app.storage.money.money_repository import RESERVED_BY_ALL
from app.storage.schema import tables
from app.storage.schema.money_tables import monthly_budgets
from app.storage.session.due_times import look_at, look_is_due
from app.storage.session.ready_statement import Ready

_jobs = tables.jobs
_points = tables.checkpoints
_promised = text(tables.PROMISED_JOB)
_movable = text(f"({tables.MOVABLE_JOB})")
_BY: BindParameter[Any] = bindparam("by")
_AT_MOST: BindParameter[Any] = bindparam("at_most")
_OF_JOB: BindParameter[Any] = bindparam("of_job")


def _due(at: Column[Any]) -> Ready:
    """Jobs whose instant has come, earliest first."""
    return Ready(select(_jobs.c.id).where(at <= _BY).order_by(at, _jobs.c.id).limit(_AT_MOST))


def _first(at: Column[Any]) -> Ready:
    return Ready(select(func.min(at)).where(at.is_not(None)))


def _to_look_at(which: TextClause, at: Column[Any]) -> Ready:
    """Jobs of a condition that are to be looked at, by id."""
    return Ready(
        select(_jobs.c.id).where(which, look_is_due(at)).order_by(_jobs.c.id).limit(_AT_MOST)
    )


DUE_TIMERS, FIRST_TIMER = _due(_jobs.c.timer_at), _first(_jobs.c.timer_at)
DUE_PRUNING, FIRST_PRUNING = _due(_jobs.c.prune_at), _first(_jobs.c.prune_at)
PROMISED = _to_look_at(_promised, _jobs.c.slack_look_at)
FIRST_PROMISE = Ready(select(func.min(look_at(_jobs.c.slack_look_at))).where(_promised))
MOVABLE = _to_look_at(_movable, _jobs.c.move_look_at)
FIRST_MOVE = Ready(select(func.min(look_at(_jobs.c.move_look_at))).where(_movable))
CLOSABLE = Ready(
    select(_jobs.c.id)
    .where(
        _jobs.c.ended_at.is_not(None),
        _jobs.c.cost_final_at.is_(None),
        ~select(tables.instances.c.id)
        .where(tables.instances.c.job_id == _jobs.c.id, tables.instances.c.cost_final_at.is_(None))
        .exists(),
    )
    .order_by(_jobs.c.id)
    .limit(_AT_MOST)
)
_OWN, _PROJECTS = tables.budgets.alias("own"), tables.budgets.alias("projects_own")
_MONTH, _SHARED_MONTH = monthly_budgets.alias("month"), monthly_budgets.alias("shared_month")
OVER_BUDGET = Ready(
    select(_jobs.c.project_id, _jobs.c.budget_id, _jobs.c.id)
    .join(_OWN, _OWN.c.id == _jobs.c.budget_id)
    .outerjoin(
        _PROJECTS,
        (_PROJECTS.c.project_id == _jobs.c.project_id) & _PROJECTS.c.job_id.is_(None),
    )
    .outerjoin(_MONTH, _MONTH.c.payer_id == _jobs.c.project_id)
    .outerjoin(_SHARED_MONTH, _SHARED_MONTH.c.payer_id == DEPLOYMENT_PAYER)
    .where(
        or_(
            text(f"jobs.{tables.one_of('state', (JobState.STARTING, JobState.RUNNING))}"),
            and_(
                text(f"jobs.{tables.one_of('state', CLAIMABLE_JOB_STATES)}"),
                _OWN.c.reserved_microusd > 0,
            ),
        ),
        or_(
            *(
                budget.c.spent_microusd + budget.c.reserved_microusd >= budget.c.cap_microusd
                for budget in (_OWN, _PROJECTS)
            ),
            *(
                and_(
                    month.c.at_full == AtFull.DRAIN_AND_PAUSE,
                    month.c.spent_microusd + reserved >= month.c.cap_microusd,
                )
                for month, reserved in (
                    (_MONTH, _PROJECTS.c.reserved_microusd),
                    (_SHARED_MONTH, RESERVED_BY_ALL),
                )
            ),
        ),
    )
    .order_by(_jobs.c.id)
    .limit(_AT_MOST)
)
STANDING = Ready(
    select(*_points.c)
    .where(_points.c.job_id == _OF_JOB, _points.c.pruned_at.is_(None), ~_points.c.final)
    .order_by(_points.c.fence, _points.c.step)
)
FINAL = Ready(
    select(_points.c.fence, _points.c.step)
    .where(_points.c.job_id == _OF_JOB, _points.c.final)
    .order_by(_points.c.fence, _points.c.step)
)
SAVED_STARTS = Ready(
    select(_points.c.fence, _points.c.parent_fence, _points.c.parent_step)
    .where(_points.c.job_id == _OF_JOB, _points.c.fence > bindparam("after"))
    .ext(distinct_on(_points.c.fence))
    .order_by(_points.c.fence, _points.c.step)
)

_POINT = upsert(tables.metric_points).values(
    {column.name: bindparam(column.name) for column in tables.metric_points.c}
)
ADD_POINT = Ready(
    _POINT.on_conflict_do_update(
        index_elements=[*tables.metric_points.primary_key],
        set_={"metrics": tables.metric_points.c.metrics.op("||")(_POINT.excluded.metrics)},
    )
)
ADD_PHASE = Ready(
    upsert(tables.phases)
    .values({column.name: bindparam(column.name) for column in tables.phases.c})
    .on_conflict_do_nothing()
)
