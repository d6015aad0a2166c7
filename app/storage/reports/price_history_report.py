"""Recorded prices of pools over a span of time, for people: what was told once and what came since.

Not here: the pools with their prices now (`deployment_read_models`), or what is drawn of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, Engine, func, select

from app.domain.market.offer import Pool
from app.domain.market.price_history import Step, summary, thinned, within
from app.storage.market.pool_past_repository import stored_steps
from app.storage.schema.money_tables import pool_pasts, pools, prices

POOLS_MAX: Final = 20
_STEPS_READ_MAX: Final = 20_000


def price_histories(
    engine: Engine, from_at: datetime, to_at: datetime, *, pool: Pool | None, gpu: str | None
) -> list[dict[str, Any]]:
    """One entry for each pool, cheapest now first, at most twenty."""
    wanted = (
        select(pools.c.pool, pools.c.price_microusd_per_hour)
        .order_by(pools.c.price_microusd_per_hour, pools.c.pool)
        .limit(POOLS_MAX)
    )
    if pool is not None:
        wanted = wanted.where(pools.c.pool == pool)
    if gpu is not None:
        wanted = wanted.where(func.upper(pools.c.hardware["gpu_name"].astext) == gpu.upper())
    with engine.connect() as connection:
        return [
            _history(connection, row.pool, row.price_microusd_per_hour, from_at, to_at)
            for row in connection.execute(wanted).all()
        ]


def _history(
    connection: Connection, pool: Pool, price: int, from_at: datetime, to_at: datetime
) -> dict[str, Any]:
    table = pool_pasts.c
    found = connection.execute(select(pool_pasts).where(table.pool == pool)).one_or_none()
    steps = dict(stored_steps(None if found is None else found.steps))
    steps |= dict(_recorded(connection, pool))  # what bills rest on has every step
    shown = within(sorted(steps.items()), from_at, to_at)
    told = summary(shown, to_at)
    return {
        "pool": pool,
        "price_microusd_per_hour": price,
        "from_at": from_at,
        "to_at": to_at,
        "known_since_at": min(steps, default=None),
        "steps": [
            {"at": at, "microusd_per_hour": microusd_per_hour}
            for at, microusd_per_hour in thinned(shown)
        ],
        "summary": None if told is None else asdict(told),
        "preemptions": [] if found is None else found.preemptions or [],
        "past_asked_at": None if found is None else found.asked_at,
    }


def _recorded(connection: Connection, pool: Pool) -> Sequence[Step]:
    statement = (
        select(prices.c.at, prices.c.microusd_per_hour)
        .where(prices.c.pool == pool)
        .order_by(prices.c.at.desc())
        .limit(_STEPS_READ_MAX)
    )
    return [(row.at, row.microusd_per_hour) for row in connection.execute(statement)]
