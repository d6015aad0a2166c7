"""The statement that finds attempts of one project that did the same work, with their machines.

Two jobs do the same work when a step of theirs is as much: the bundled trainer's model, batch and
precision are the same, or the command and the image are. Not here: what follows from their paces
(`app.domain.kind_speed`).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Float, Select, cast, func, select
from sqlalchemy.sql.elements import ColumnElement

from app.adapters.postgres import tables
from app.adapters.postgres.money_tables import pools
from app.domain.attempt import LIVE_ATTEMPT_STATES

RUNS_MAX: Final = 200
_SAME: Final = (("trainer", "model"), ("trainer", "batch_size"), ("trainer", "precision"))
_SAME_COMMAND: Final = (("run",), ("image",))

_attempts, _jobs, _machines = tables.attempts.c, tables.jobs.c, tables.instances.c
_members = tables.attempt_members.c


def same_work(project_id: UUID, spec: Mapping[str, Any], since: datetime) -> Select[Any]:
    """(hardware, machines, steps, seconds) of ended attempts since then, the newest first."""
    seconds: ColumnElement[float] = cast(
        func.extract("epoch", _attempts.updated_at - _attempts.trained_at), Float
    )
    steps = _attempts.best_step - func.coalesce(_attempts.parent_step, 0)
    parts = _SAME_COMMAND if spec.get("run") is not None else _SAME
    alike = [_jobs.spec[path].astext.is_not_distinct_from(_at(spec, path)) for path in parts]
    return (
        select(pools.c.hardware, _attempts.node_count, steps, seconds)
        .join(tables.jobs, _jobs.id == _attempts.job_id)
        .join(
            tables.attempt_members,
            (_members.attempt_id == _attempts.id) & (_members.node_rank == 0),
        )
        .join(tables.instances, _machines.id == _members.instance_id)
        .join(pools, pools.c.pool == _machines.pool)
        .where(_jobs.project_id == project_id, *alike)
        .where(
            _attempts.trained_at >= since,
            _attempts.state.not_in(sorted(LIVE_ATTEMPT_STATES)),
            steps > 0,
            seconds > 0,
        )
        .order_by(_attempts.trained_at.desc(), _attempts.id)
        .limit(RUNS_MAX)
    )


def _at(spec: Mapping[str, Any], path: tuple[str, ...]) -> str | None:
    """The text that PostgreSQL has for a scalar of a JSON document."""
    found: Any = spec
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return None if found is None else str(found)
