"""The statement that finds attempts that did the same work, with their machines.

Not here: which jobs do the same work (`throughput.same_work`), or what follows from their paces
(`app.domain.throughput.gpu_throughput`).
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import bindparam, select

from app.storage.schema import tables
from app.storage.schema.money_tables import pools
from app.storage.session.ready_statement import Ready

RUNS_MAX: Final = 200

_attempts, _machines = tables.attempts.c, tables.instances.c
_members = tables.attempt_members.c


# Steps and seconds after the first step of each: neither start-up nor drain is counted.
_STEPS = _attempts.last_step - _attempts.first_step
SAME_WORK: Final = Ready(
    select(pools.c.hardware, _attempts.node_count, _STEPS, _attempts.stepping_seconds)
    .join(
        tables.attempt_members,
        (_members.attempt_id == _attempts.id) & (_members.node_rank == 0),
    )
    .join(tables.instances, _machines.id == _members.instance_id)
    .join(pools, pools.c.pool == _machines.pool)
    .where(
        _attempts.work_digest == bindparam("of_work"),
        _attempts.trained_at >= bindparam("since"),
        _STEPS > 0,
        _attempts.stepping_seconds > 0,
    )
    .order_by(_attempts.trained_at.desc(), _attempts.id)
    .limit(RUNS_MAX)
)
"""(hardware, machines, steps, seconds) of ended attempts of the work `of_work` that began to train
at `since` or later, the newest first.
"""
