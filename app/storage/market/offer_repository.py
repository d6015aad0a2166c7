"""Pools, their present prices and cool-downs, and the price history, in PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ARRAY, Float, Text, and_, any_, bindparam, case, func, select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from app.domain.market.offer import Offer, Pool, Quote
from app.ports.price_source import PriceChange
from app.storage.schema.column_types import region_in
from app.storage.schema.money_tables import pools, prices
from app.storage.session.ready_statement import Ready
from app.storage.session.record_session import Repository, Row

_BATCH = 2_000
"""Rows per statement: PostgreSQL takes 65,535 values at most."""


def _batches(rows: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    return [rows[start : start + _BATCH] for start in range(0, len(rows), _BATCH)]


_QUOTE = (
    pools.c.pool,
    pools.c.hardware,
    pools.c.price_microusd_per_hour,
    pools.c.on_demand_microusd_per_hour,
    pools.c.cloud,
    pools.c.quoted_at,
    pools.c.price_source,
    pools.c.available,
    pools.c.billing_speed,
    pools.c.attachments,
    pools.c.hazard_factor,
    pools.c.list_microusd_per_hour,
    pools.c.price_terms,
)
_ALL = Ready(select(*_QUOTE, pools.c.cool_until_at).order_by(pools.c.pool))
_ONE = Ready(select(*_QUOTE).where(pools.c.pool == bindparam("this_pool")))
_SOME = Ready(
    select(*_QUOTE, pools.c.cool_until_at)
    .where(pools.c.pool == any_(bindparam("these_pools", type_=ARRAY(Text))))
    .order_by(pools.c.pool)
)
_OF_PROVIDER = select(func.max(pools.c.quoted_at)).where(
    pools.c.provider == bindparam("of_provider")
)
_LAST_QUOTED = Ready(_OF_PROVIDER)
_LAST_QUOTED_THERE = Ready(_OF_PROVIDER.where(region_in(pools.c.pool) == bindparam("of_region")))
_TERMS = Ready(
    select(pools.c.pool, pools.c.price_terms).where(pools.c.provider == bindparam("of_provider"))
)
_COOL_DOWN = Ready(
    update(pools)
    .where(pools.c.pool == bindparam("this_pool"))
    .values(
        cool_until_at=bindparam("until_at"),
        cool_reason=bindparam("why"),
        refusals=pools.c.refusals + 1,
    )
)
_LEARN = Ready(
    update(pools)
    .where(pools.c.pool == bindparam("of_pool"))
    .values(hazard_factor=bindparam("factor", type_=Float(53)))
)
_POINT = (prices.c.at, prices.c.microusd_per_hour, prices.c.source, prices.c.captured_at)
_POINTS = select(*_POINT).where(prices.c.pool == bindparam("of_pool")).order_by(prices.c.at)
PRICE_POINTS_SINCE = _POINTS.where(
    prices.c.at
    >= func.coalesce(
        select(func.max(prices.c.at))
        .where(prices.c.pool == bindparam("of_pool"), prices.c.at <= bindparam("since"))
        .scalar_subquery(),
        bindparam("since"),
    )
)
"""Points of the pool `of_pool`, from what held at `since` on."""
_ALL_POINTS, _POINTS_SINCE = Ready(_POINTS), Ready(PRICE_POINTS_SINCE)


def _offer(row: Row) -> Offer:
    return Offer.from_quote(
        Quote(
            pool=Pool.parse(row[0]),
            hardware=row[1],
            price_microusd_per_hour=row[2],
            on_demand_microusd_per_hour=row[3],
            cloud=row[4],
            quoted_at=row[5],
            price_source=row[6],
            available=row[7],
            billing_speed=row[8],
            attachments=row[9],
            hazard_factor=row[10],
            list_microusd_per_hour=row[11],
            price_terms=row[12],
        )
    )


class OfferRepository(Repository):
    """Pools, their present prices and cool-downs, and the price history."""

    def all(self) -> list[tuple[Offer, datetime | None]]:
        """Every offer with the end of its cool-down, by pool."""
        return [(_offer(row), row[-1]) for row in self._session.rows(_ALL)]

    def get(self, pool: Pool) -> Offer | None:
        """The offer of a pool."""
        row = self._session.row(_ONE, {"this_pool": pool})
        return None if row is None else _offer(row)

    def of(self, pools: Sequence[Pool]) -> list[tuple[Offer, datetime | None]]:
        """The offers of these pools with the ends of their cool-downs, by pool."""
        found = self._session.rows(_SOME, {"these_pools": [pool.key for pool in pools]})
        return [(_offer(row), row[-1]) for row in found]

    def record(
        self, offers: Iterable[Offer], changes: Iterable[PriceChange], now: datetime
    ) -> None:
        """Store quotes and price changes; what is known already stays."""
        quotes = [
            {
                "pool": offer.pool,
                "provider": offer.pool.provider,
                "cloud": offer.cloud,
                "hardware": offer.hardware.to_json(),
                "price_microusd_per_hour": offer.price_microusd_per_hour,
                "on_demand_microusd_per_hour": offer.on_demand_microusd_per_hour,
                "quoted_at": offer.quoted_at,
                "price_source": offer.price_source,
                "available": offer.available,
                "billing_speed": offer.billing_speed,
                "attachments": None if offer.attachments is None else offer.attachments.to_json(),
                "refusals": 0,
                "list_microusd_per_hour": offer.list_microusd_per_hour,
                "price_terms": offer.price_terms,
            }
            # In order: jobs that mark pools meanwhile lock them in the same order.
            for offer in sorted(offers, key=lambda one: one.pool.key)
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

    def price_terms(self, provider: str) -> dict[Pool, str | None]:
        """The terms at which each of the provider's pools was quoted last; None: as listed."""
        given = {"of_provider": provider}
        return {Pool.parse(row[0]): row[1] for row in self._session.rows(_TERMS, given)}

    def learn(self, provider: str, factors: Mapping[Pool, float]) -> None:
        """Remember how often machines are taken in a provider's pools, against the usual.

        Pools that are left out count as unknown again. Only what has changed is written.
        """
        known = self._session.execute(
            select(pools.c.pool, pools.c.hazard_factor)
            .where(pools.c.provider == provider)
            .order_by(pools.c.pool)
        )
        changed = [
            {"of_pool": row.pool, "factor": factors.get(row.pool)}
            for row in known
            if row.hazard_factor != factors.get(row.pool)
        ]
        # In the order in which `record` locks them.
        self._session.write(_LEARN, sorted(changed, key=lambda one: one["of_pool"].key))

    def last_quoted_at(self, provider: str, region: str | None = None) -> datetime | None:
        """When the provider's prices, or those of one of its regions, were last stored."""
        named: dict[str, str] = {"of_provider": provider}
        if region is not None:
            named["of_region"] = region
        statement = _LAST_QUOTED if region is None else _LAST_QUOTED_THERE
        return self._session.instant(statement, named)

    def cool_down(self, pool: Pool, until: datetime, reason: str) -> None:
        """Leave a pool alone until then."""
        given = {"this_pool": pool, "until_at": until, "why": reason}
        self._session.rows(_COOL_DOWN, given)

    def cool_down_all(self, rests: Mapping[Pool, tuple[datetime, str]]) -> None:
        """Leave pools alone (until, reason); those that rest longer already go on doing so."""
        # Locked in their order, as by every transaction that marks several.
        named = pools.c.pool.in_(sorted(rests))
        by_key = pools.c.pool.collate("C")
        self._session.execute(select(pools.c.pool).where(named).order_by(by_key).with_for_update())
        for until, reason in sorted(set(rests.values())):
            chosen = sorted(pool for pool, rest in rests.items() if rest == (until, reason))
            longer = and_(pools.c.cool_until_at.is_not(None), pools.c.cool_until_at >= until)
            self._session.execute(
                update(pools)
                .where(pools.c.pool.in_(chosen))
                .values(
                    cool_until_at=case((longer, pools.c.cool_until_at), else_=until),
                    cool_reason=case((longer, pools.c.cool_reason), else_=reason),
                    refusals=pools.c.refusals + 1,
                )
            )

    def price_points(
        self, pool: Pool, since: datetime | None = None
    ) -> list[tuple[datetime, int, str, datetime]]:
        """(at, micro-USD per hour, source, captured_at) by time, from what held at `since` on."""
        if since is None:
            found = self._session.rows(_ALL_POINTS, {"of_pool": pool})
        else:
            found = self._session.rows(_POINTS_SINCE, {"of_pool": pool, "since": since})
        return [(at, price, source, captured_at) for at, price, source, captured_at in found]
