"""What clouds told of pools besides their prices, in PostgreSQL: one row for each pool.

A pool's steps lie together in one value, thinned, beside the table that bills are made from: those
rows stay few. Not here: prices that bills rest on (`offer_repository`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, and_, or_, select
from sqlalchemy.dialects.postgresql import insert as upsert

from app.domain.market.offer import Market, Pool
from app.domain.market.price_history import Step, thinned
from app.ports.pool_past import PoolPast, PreemptionRate
from app.storage.schema.column_types import region_in
from app.storage.schema.money_tables import pool_pasts, pools
from app.storage.session.record_session import Repository

_past = pool_pasts.c
_SPOT = pools.c.pool.like(f"%/{Market.SPOT.value}")
_REGION = region_in(pools.c.pool)
PREEMPTIONS_MAX = 90


class PoolPastRepository(Repository):
    """What was told, by pool."""

    def without_past(
        self,
        provider: str,
        asked_before: datetime | None,
        limit: int,
        *,
        except_regions: Sequence[str] = (),
    ) -> list[Pool]:
        """Spot pools never asked about, or not since then (None: once is enough), oldest first."""
        due: ColumnElement[bool] = _past.asked_at.is_(None)
        if asked_before is not None:
            due = or_(due, _past.asked_at <= asked_before)
        rows = self._session.execute(
            select(pools.c.pool)
            .outerjoin(pool_pasts, _past.pool == pools.c.pool)
            .where(pools.c.provider == provider, _SPOT, due, _REGION.not_in(except_regions))
            .order_by(_past.asked_at.nulls_first(), pools.c.pool)
            .limit(limit)
        )
        return [row.pool for row in rows]

    def without_score(self, provider: str, scored_before: datetime, limit: int) -> list[Pool]:
        """Spot pools of one GPU that were not scored since then."""
        gpu = pools.c.hardware["gpu_name"].astext
        own = and_(pools.c.provider == provider, _SPOT)
        due = or_(_past.scored_at.is_(None), _past.scored_at <= scored_before)
        joined = select(gpu.label("gpu")).outerjoin(pool_pasts, _past.pool == pools.c.pool)
        first = self._session.execute(joined.where(own, due).order_by(gpu).limit(1)).all()
        if not first:
            return []
        rows = self._session.execute(
            select(pools.c.pool)
            .outerjoin(pool_pasts, _past.pool == pools.c.pool)
            .where(own, due, gpu == first[0].gpu)
            .order_by(pools.c.pool)
            .limit(limit)
        )
        return [row.pool for row in rows]

    def record_past(self, pasts: Sequence[PoolPast], asked: Sequence[Pool], now: datetime) -> None:
        """Remember what was told; what nothing was told about counts as asked."""
        told = {one.pool: one for one in pasts}
        for pool in sorted({*asked, *told}):
            values: dict[str, Any] = {"asked_at": now}
            past = told.get(pool)
            if past is not None:
                values["steps"] = [[at.timestamp(), price] for at, price in thinned(past.steps)]
                values["source"] = past.source
                values["preemptions"] = [_rate(one) for one in past.preemptions[-PREEMPTIONS_MAX:]]
            self._write(pool, values)

    def record_scores(
        self, scores: Mapping[Pool, int], asked: Sequence[Pool], now: datetime
    ) -> None:
        """Remember scores; pools without one count as asked."""
        for pool in sorted({*asked, *scores}):
            self._write(pool, {"score": scores.get(pool), "scored_at": now})

    def past(self, pool: Pool) -> dict[str, Any] | None:
        """The row of a pool, for tests and reports."""
        rows = self._session.execute(select(*_past).where(_past.pool == pool)).all()
        return dict(rows[0]._asdict()) if rows else None

    def _write(self, pool: Pool, values: dict[str, Any]) -> None:
        statement = upsert(pool_pasts).values(pool=pool, **values)
        self._session.execute(statement.on_conflict_do_update(index_elements=["pool"], set_=values))


def stored_steps(stored: Sequence[Sequence[float]] | None) -> list[Step]:
    """The steps of a row."""
    return [(datetime.fromtimestamp(at, UTC), int(price)) for at, price in stored or ()]


def _rate(one: PreemptionRate) -> dict[str, Any]:
    return {
        "from_at": None if one.from_at is None else one.from_at.isoformat(),
        "to_at": None if one.to_at is None else one.to_at.isoformat(),
        "rate": one.rate,
    }
