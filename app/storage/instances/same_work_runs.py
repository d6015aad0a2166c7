"""The statement that finds attempts that did the same work, with their machines.

Not here: which jobs do the same work (`throughput.same_work`), or what follows from their paces
(`app.domain.throughput.gpu_throughput`).
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from sqlalchemy import Select, select

from app.storage.schema import tables
from app.storage.schema.money_tables import pools

RUNS_MAX: Final = 200

_attempts, _machines = tables.attempts.c, tables.instances.c
_members = tables.attempt_members.c


def same_work(work_digest: str, since: datetime) -> Select[Any]:
    """(hardware, machines, steps, seconds) of ended attempts since then, the newest first.

    Steps and seconds after the first step of each: neither start-up nor drain is counted.
    """
    steps = _attempts.last_step - _attempts.first_step
    return (
        select(pools.c.hardware, _attempts.node_count, steps, _attempts.stepping_seconds)
        .join(
            tables.attempt_members,
            (_members.attempt_id == _attempts.id) & (_members.node_rank == 0),
        )
        .join(tables.instances, _machines.id == _members.instance_id)
        .join(pools, pools.c.pool == _machines.pool)
        .where(
            _attempts.work_digest == work_digest,
            _attempts.trained_at >= since,
            steps > 0,
            _attempts.stepping_seconds > 0,
        )
        .order_by(_attempts.trained_at.desc(), _attempts.id)
        .limit(RUNS_MAX)
    )
