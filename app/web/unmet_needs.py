"""What a waiting job asks for, what stands in its way in each pool, and what would unblock it.

Lives here: the verdicts of placement over the prices of now, told for people. Not here: why it
waits (the queue writes that), or which offer it would get (`placement`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from app.domain.job_spec import JobSpec
from app.domain.offer import Hardware, Market, Offer, Pool
from app.domain.placement import (
    Considered,
    Need,
    carries,
    consider,
    inside,
    need_of,
    of_types,
)
from app.ports.job_reports import JobReports
from app.web import formats

OFFERS_SHOWN: Final = 5


@dataclass(frozen=True)
class OfferRow:
    """A pool that has what a waiting job needs, with its price now and the verdict on it."""

    pool: Pool
    microusd_per_hour: int
    on_demand_ratio: float
    available: int | None
    fits: bool
    verdict: str


@dataclass(frozen=True)
class Unmet:
    """What it needs; the nearest pools; sentences on what would let it start, and at what price."""

    needs: str
    offers: tuple[OfferRow, ...]
    unblocked_by: tuple[str, ...]


def quoted_pools(jobs: JobReports, spec: JobSpec) -> list[Mapping[str, Any]]:
    """Every pool with a GPU that the job names, with its price now."""
    names: list[str | None] = [choice.name for choice in spec.gpu_choices]
    return [row for name in dict.fromkeys(names or [None]) for row in jobs.offers(name)]


def unmet_needs(rows: Iterable[Mapping[str, Any]], spec: JobSpec, now: datetime) -> Unmet:
    """What stands between a job and its machines; `rows` are pools with their prices."""
    market = Market.ON_DEMAND if spec.effective_market() == "on_demand" else Market.SPOT
    need = need_of(spec, market, spec.node_count)
    quoted = [(_offer(row), row["cool_until_at"]) for row in rows]
    considered = consider(quoted, need, now)
    able = [
        item
        for item in considered
        if item.offer.pool.market is market
        and carries(item.offer, need)
        and inside(item.offer.pool, need.infra)
        and of_types(item.offer.pool, need.types)
    ]
    told = list(_unblocked_by(able, need, now, dict(quoted)))
    if market is Market.SPOT and not any(item.fits for item in able):
        other = need_of(spec, Market.ON_DEMAND, spec.node_count)
        told += _on_demand(consider(quoted, other, now), other)
    return Unmet(_needs(spec), tuple(map(_row, able[:OFFERS_SHOWN])), tuple(told))


def _unblocked_by(
    able: Sequence[Considered],
    need: Need,
    now: datetime,
    cool_until: Mapping[Offer, datetime | None],
) -> Iterable[str]:
    """The nearest way out of each kind, cheapest pool first."""
    fitting = [item.offer for item in able if item.fits]
    if fitting:
        yield f"{_where(fitting[0])} fits now: {_price(fitting[0], need.count)}."
        return
    limit = need.max_price_ratio if need.market is Market.SPOT else None
    affordable = [i.offer for i in able if limit is None or i.offer.on_demand_ratio <= limit]
    full = [one for one in affordable if not _has_room(one, need.count)]
    if full:
        yield (
            f"Room for {_machines(need.count)} in {_where(full[0])}, which has "
            f"{full[0].available}: {_price(full[0], need.count)}."
        )
    resting = [one for one in affordable if _has_room(one, need.count)]
    until = None if not resting else cool_until.get(resting[0])
    if until is not None and until > now:
        yield (
            f"The end of the rest that {_where(resting[0])} is given after a refusal, at "
            f"{formats.clock_time(until)} UTC: {_price(resting[0], need.count)}."
        )
    dear = [item.offer for item in able if item.offer not in affordable]
    if dear and limit is not None:
        nearest = min(dear, key=lambda one: one.on_demand_ratio)
        most = int(nearest.on_demand_microusd_per_hour * limit)
        yield (
            f"A price of at most {formats.per_hour(most)} in {_where(nearest)}, "
            f"{formats.percent(limit)} of on-demand; now it is "
            f"{formats.per_hour(nearest.price_microusd_per_hour)}."
        )


def _on_demand(considered: Sequence[Considered], need: Need) -> Iterable[str]:
    """What it would cost not to wait."""
    fitting = [item.offer for item in considered if item.fits]
    if fitting:
        yield (
            f"With market: on_demand in its spec, {_where(fitting[0])} now: "
            f"{_price(fitting[0], need.count)}."
        )


def _needs(spec: JobSpec) -> str:
    gpus = " or ".join(str(choice) for choice in spec.gpu_choices) or "one GPU that fits"
    market = {"auto": "spot or on-demand", "on_demand": "on-demand"}.get(
        spec.effective_market(), "spot"
    )
    types = f" ({' or '.join(spec.instance_types)})" if spec.instance_types else ""
    needed = f"{_machines(spec.node_count)}{types} with {gpus}, {market}"
    if market == "on-demand":
        return needed
    return f"{needed}, at no more than {formats.percent(spec.max_price_ratio)} of on-demand"


def _row(item: Considered) -> OfferRow:
    offer = item.offer
    return OfferRow(
        offer.pool,
        offer.price_microusd_per_hour,
        offer.on_demand_ratio,
        offer.available,
        item.fits,
        item.why,
    )


def _offer(row: Mapping[str, Any]) -> Offer:
    return Offer(
        pool=row["pool"],
        hardware=Hardware(**row["hardware"]),
        price_microusd_per_hour=row["price_microusd_per_hour"],
        on_demand_microusd_per_hour=row["on_demand_microusd_per_hour"],
        cloud=row["cloud"],
        quoted_at=row["quoted_at"],
        price_source=row["price_source"],
        available=row["available"],
        billing_speed=row["billing_speed"],
    )


def _has_room(offer: Offer, count: int) -> bool:
    return offer.available is None or offer.available >= count


def _where(offer: Offer) -> str:
    return f"{offer.pool.zone} ({offer.pool.instance_type})"


def _machines(count: int) -> str:
    return "1 machine" if count == 1 else f"{count} machines"


def _price(offer: Offer, count: int) -> str:
    each = formats.per_hour(offer.price_microusd_per_hour)
    if count == 1:
        return each
    return f"{each} each, {formats.per_hour(count * offer.price_microusd_per_hour)} together"
