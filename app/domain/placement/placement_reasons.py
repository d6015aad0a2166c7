"""The reasons of a decision, put together: a verdict for each pool, and what would end a wait.

Lives here: turning what placement considered into what is stored. Not here: the shape that is
stored (`placement_decision`), or the verdicts and their order (`placement`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from app.domain.billing.egress import added_microusd_per_hour
from app.domain.market.offer import Market, Offer, Pool
from app.domain.placement.expected_cost import expect
from app.domain.placement.fit_verdict import FitVerdict
from app.domain.placement.launch_room import obstacle_of
from app.domain.placement.no_offer import nearest_miss
from app.domain.placement.placement import (
    Need,
    RankedOffer,
    carries,
    gang_hazard_factor,
    hour_of_progress,
    inside,
    of_types,
    work_speed,
)
from app.domain.placement.placement_decision import POOLS_SHOWN_MAX, PoolVerdict, Unblock
from app.domain.units.money import format_usd
from app.domain.units.percent import percent

ASKED_AS_WELL = "also requested: the cloud picks one"
_SAME_PRICE = 0.005
_LONGEST_SECONDS = 100 * 365 * 86_400.0
"""A finish is told as an instant: what lies beyond a century would be beyond the calendar too."""


@dataclass(frozen=True)
class PlacementOutcome:
    """What was considered for a job, and what of it was asked for.

    work_seconds: that is left, None where it is not known; on machines of told_for_speed against a
    V100, None: on those of the best pool.
    """

    considered: Sequence[RankedOffer]
    need: Need
    chosen: Collection[Pool]
    work_seconds: float | None
    told_for_speed: float | None = None


def pool_verdicts(outcome: PlacementOutcome) -> tuple[PoolVerdict, ...]:
    """A verdict for each pool that has what is needed, then for others; best first in each.

    Of those that have it, the market that was asked for leads.
    """
    need = outcome.need

    def place(item: RankedOffer) -> tuple[bool, bool]:
        return not carries(item.offer, need), item.offer.pool.market is not need.market

    ordered = sorted(outcome.considered, key=place)
    reference = outcome.told_for_speed
    if reference is None:
        reference = work_speed(ordered[0].offer, outcome.need) if ordered else 1.0
    return tuple(_verdict(item, outcome, reference) for item in ordered[:POOLS_SHOWN_MAX])


def compared(rows: tuple[PoolVerdict, ...]) -> tuple[PoolVerdict, ...]:
    """The same; pools that fit also say how their progress compares in price with that taken."""
    best = next((row for row in rows if row.chosen), None)
    if best is None or not best.expected_microusd:
        return rows
    return tuple(
        row if row is best or not row.fits else _beside(row, best.expected_microusd) for row in rows
    )


def _beside(row: PoolVerdict, taken_microusd: int) -> PoolVerdict:
    more = (row.expected_microusd or taken_microusd) / taken_microusd - 1
    if row.chosen:
        told = ASKED_AS_WELL
    elif more >= _SAME_PRICE:
        told = f"{percent(more)} more expensive per hour of training"
    elif more <= -_SAME_PRICE:
        told = f"{percent(-more)} cheaper per hour of training"
    else:
        told = "same cost per hour of training"
    return replace(row, why=f"{row.why}; {told}")


def unblocked_by(outcome: PlacementOutcome) -> Unblock | None:
    """What would end a wait for want of any offer: the nearest miss of the cheapest able pool."""
    need = outcome.need
    able = [
        item
        for item in outcome.considered
        if item.offer.pool.market is need.market
        and inside(item.offer.pool, need.infra)
        and of_types(item.offer.pool, need.types)
        and carries(item.offer, need)
    ]
    obstacle = obstacle_of(able)
    if obstacle is not None:
        return Unblock(obstacle.remedy)
    for verdict, say in _WAYS_OUT:
        found = [item for item in able if item.verdict is verdict]
        if found:
            return say(nearest_miss(found).offer, need)
    return None


def _resting(offer: Offer, _need: Need) -> Unblock:
    return Unblock(f"the end of the cool-down of {_where(offer)}", offer.cost_microusd_per_hour)


def _full(offer: Offer, need: Need) -> Unblock:
    machines = "1 machine" if need.count == 1 else f"{need.count} machines"
    return Unblock(f"{machines} free in {_where(offer)}", offer.cost_microusd_per_hour)


def _dear(offer: Offer, need: Need) -> Unblock:
    limit = int(offer.on_demand_microusd_per_hour * need.max_price_ratio)
    dearer = offer.cost_microusd_per_hour - offer.price_microusd_per_hour
    return Unblock(f"a price of at most {format_usd(limit)}/h in {_where(offer)}", limit + dearer)


def _old(offer: Offer, _need: Need) -> Unblock:
    return Unblock(f"a fresh price for {_where(offer)}", None)


_WAYS_OUT = (
    (FitVerdict.RESTING, _resting),
    (FitVerdict.FULL, _full),
    (FitVerdict.TOO_DEAR, _dear),
    (FitVerdict.QUOTE_TOO_OLD, _old),
)
"""What passes by itself comes first."""


def _where(offer: Offer) -> str:
    pool = offer.pool
    return f"{pool.provider} {pool.zone} ({pool.instance_type})"


def _verdict(item: RankedOffer, outcome: PlacementOutcome, reference: float) -> PoolVerdict:
    offer, need = item.offer, outcome.need
    pool = offer.pool
    spot = pool.market is Market.SPOT
    factor = offer.hazard_factor if spot else None
    price = offer.billed_microusd_per_hour + added_microusd_per_hour(need.restore, pool)
    hour_of_work = expect(price, 3_600, need.restart_seconds, factor)
    microusd: int | None = None
    seconds: float | None = None
    why = item.why
    if carries(offer, need) and pool.market is not need.market:
        why = f"{'spot' if spot else 'on-demand'} is not requested now"
    if carries(offer, need):
        speed = work_speed(offer, need) / reference
        if outcome.work_seconds is not None:
            work = outcome.work_seconds / speed
            gang_factor = gang_hazard_factor(offer, need)
            found = expect(price * need.gang, work, need.restart_seconds, gang_factor)
            microusd, seconds = found.microusd, round(min(found.seconds, _LONGEST_SECONDS), 1)
        else:
            microusd = round(hour_of_progress(offer, need) / speed)
    return PoolVerdict(
        pool=pool.key,
        market=pool.market,
        price_microusd_per_hour=offer.cost_microusd_per_hour,
        on_demand_microusd_per_hour=offer.on_demand_microusd_per_hour,
        quoted_at=offer.quoted_at,
        fits=item.fits,
        chosen=pool in outcome.chosen,
        why=why,
        hazard_per_hour=None if factor is None else round(hour_of_work.interruptions_per_hour, 3),
        expected_microusd=microusd,
        expected_finish_seconds=seconds,
        billing_speed=offer.billing_speed,
    )


def slack_seconds(last_safe_at: datetime | None, now: datetime) -> float | None:
    """Seconds until the last safe moment; negative when it has passed."""
    return None if last_safe_at is None else (last_safe_at - now) / timedelta(seconds=1)
