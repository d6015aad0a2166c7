"""Pools, their present prices and cool-downs, and the price history, in PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.engine import Row
from sqlalchemy.orm import Session

from app.adapters.postgres.money_tables import pools, prices
from app.domain.offer import Hardware, Offer, Pool
from app.ports.price_source import PriceChange

_BATCH = 2_000
"""Rows per statement: PostgreSQL takes 65,535 values at most."""


def _batches(rows: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    return [rows[start : start + _BATCH] for start in range(0, len(rows), _BATCH)]


def _offer(row: Row[Any]) -> Offer:
    return Offer(
        pool=row.pool,
        hardware=Hardware(**row.hardware),
        price_microusd_per_hour=row.price_microusd_per_hour,
        on_demand_microusd_per_hour=row.on_demand_microusd_per_hour,
        cloud=row.cloud,
        quoted_at=row.quoted_at,
        price_source=row.price_source,
        available=row.available,
        billing_speed=row.billing_speed,
    )


class OfferRepository:
    """Implements `app.ports.unit_of_work.Offers`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def all(self) -> list[tuple[Offer, datetime | None]]:
        """Every offer with the end of its cool-down, by pool."""
        rows = self._session.execute(select(pools).order_by(pools.c.pool))
        return [(_offer(row), row.cool_until_at) for row in rows]

    def get(self, pool: Pool) -> Offer | None:
        """The offer of a pool."""
        row = self._session.execute(select(pools).where(pools.c.pool == pool)).one_or_none()
        return None if row is None else _offer(row)

    def record(
        self, offers: Iterable[Offer], changes: Iterable[PriceChange], now: datetime
    ) -> None:
        """Store quotes and price changes; what is known already stays."""
        quotes = [
            {
                "pool": offer.pool,
                "provider": offer.pool.provider,
                "cloud": offer.cloud,
                "hardware": vars(offer.hardware),
                "price_microusd_per_hour": offer.price_microusd_per_hour,
                "on_demand_microusd_per_hour": offer.on_demand_microusd_per_hour,
                "quoted_at": offer.quoted_at,
                "price_source": offer.price_source,
                "available": offer.available,
                "billing_speed": offer.billing_speed,
                "refusals": 0,
            }
            # In order: jobs that mark pools meanwhile lock them in the same order.
            for offer in sorted(offers, key=lambda one: one.pool)
        ]
        for batch in _batches(quotes):
            statement = upsert(pools).values(batch)
            fresh = {
                name: statement.excluded[name]
                for name in quotes[0]
                if name not in ("pool", "refusals")
            }
            self._session.execute(
                statement.on_conflict_do_update(index_elements=["pool"], set_=fresh)
            )
        points = [
            {
                "pool": change.pool,
                "at": change.at,
                "microusd_per_hour": change.microusd_per_hour,
                "source": change.source,
                "captured_at": now,
            }
            for change in changes
        ]
        for batch in _batches(points):
            self._session.execute(upsert(prices).values(batch).on_conflict_do_nothing())

    def last_quoted_at(self, provider: str) -> datetime | None:
        """When the provider's prices were last stored."""
        newest: datetime | None = self._session.scalar(
            select(func.max(pools.c.quoted_at)).where(pools.c.provider == provider)
        )
        return newest

    def cool_down(self, pool: Pool, until: datetime, reason: str) -> None:
        """Leave a pool alone until then."""
        self._session.execute(
            update(pools)
            .where(pools.c.pool == pool)
            .values(cool_until_at=until, cool_reason=reason, refusals=pools.c.refusals + 1)
        )

    def price_points(
        self, pool: Pool, since: datetime | None = None
    ) -> list[tuple[datetime, int, str, datetime]]:
        """(at, micro-USD per hour, source, captured_at) by time, from what held at `since` on."""
        statement = select(prices).where(prices.c.pool == pool).order_by(prices.c.at)
        if since is not None:
            in_effect = (
                select(func.max(prices.c.at))
                .where(prices.c.pool == pool, prices.c.at <= since)
                .scalar_subquery()
            )
            statement = statement.where(prices.c.at >= func.coalesce(in_effect, since))
        return [
            (row.at, row.microusd_per_hour, row.source, row.captured_at)
            for row in self._session.execute(statement)
        ]
