"""What a waiting job asks for, what stands in its way in each pool, and what would unblock it.

Lives here: the verdicts of placement over the prices of now, told for people. Not here: why it
waits (the queue writes that), or which offer it would get (`placement`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from app.domain.lifecycle.entities import Job
from app.domain.market.offer import Market, Offer, Pool
from app.domain.placement.fit_verdict import FitVerdict
from app.domain.placement.no_offer import docker_settings, nearest_miss, what_all_lack
from app.domain.placement.placement import (
    Need,
    RankedOffer,
    carries,
    inside,
    need_of,
    of_types,
    rank_offers,
)
from app.domain.placement.placement_decision import DecisionVerdict, PlacementDecision
from app.domain.spec.job_spec import JobSpec
from app.domain.units.durations import format_duration
from app.domain.units.errors import ProblemKind, SpecError
from app.domain.units.instants import clock_time, format_instant
from app.domain.units.money import format_usd
from app.domain.units.percent import percent
from app.orchestration.frame.limits import Limits
from app.orchestration.placement.queue_need import queue_need
from app.storage.reports.deployment_read_models import QuotedPoolRow
from app.storage.reports.job_read_models import JobReports

OFFERS_SHOWN: Final = 5
USUAL_LIMITS: Final = Limits()
_HELD_BACK: Final = frozenset({FitVerdict.FROZEN.value, FitVerdict.OVER_LIMIT.value})


@dataclass(frozen=True)
class OfferRow:
    """A pool that has what a waiting job needs, with its price now and the verdict on it.

    cost_microusd_per_hour: the price with that of what comes with the machine. billing_speed:
    billed seconds of one second there, which neither counts.
    """

    pool: Pool
    microusd_per_hour: int
    cost_microusd_per_hour: int
    billing_speed: int
    on_demand_ratio: float
    available: int | None
    fits: bool
    verdict: str


@dataclass(frozen=True)
class Remedy:
    """One thing that would let the job start, and what an hour of all machines costs then.

    Pool and price are None where it is no matter of one pool, or of money.
    """

    sentence: str
    pool: Pool | None
    microusd_per_hour: int | None


@dataclass(frozen=True)
class UnmetRequirements:
    """What it needs; the nearest pools; what would let it start, and at what price."""

    needs: str
    offers: tuple[OfferRow, ...]
    ways_out: tuple[Remedy, ...]

    @property
    def unblocked_by(self) -> tuple[str, ...]:
        """The ways out in words."""
        return tuple(one.sentence for one in self.ways_out)


def quoted_pools(jobs: JobReports, spec: JobSpec) -> list[QuotedPoolRow]:
    """Every pool with a GPU that the job names, with its price now."""
    names: list[str | None] = [choice.name for choice in spec.gpu_choices]
    return [row for name in dict.fromkeys(names or [None]) for row in jobs.offers(name)]


def unmet_requirements(
    rows: Iterable[QuotedPoolRow],
    spec: JobSpec,
    now: datetime,
    job: Job | None = None,
    decision: PlacementDecision | None = None,
    limits: Limits = USUAL_LIMITS,
) -> UnmetRequirements:
    """What stands between a job and its machines; `rows` are pools with their prices.

    job: whose market may be another by now than its spec says. decision: the newest one about it;
    where it is to wait although a pool fits, that pool is no way out. limits: the deployment's.
    """
    market = Market.ON_DEMAND if spec.effective_market() == "on_demand" else Market.SPOT
    count = spec.nodes.least
    if job is not None:
        market = job.market_mode
    need = queue_need(spec, market, count, limits)
    quoted = [(Offer.from_quote(row), row["cool_until_at"]) for row in rows]
    able = [
        item
        for item in rank_offers(quoted, need, now)
        if item.offer.pool.market is market
        and carries(item.offer, need)
        and inside(item.offer.pool, need.infra)
        and of_types(item.offer.pool, need.types)
    ]
    ways = list(_ways_out(able, need, now))
    fits = any(item.fits for item in able)
    if decision is not None and _is_held_back(decision):
        shown = tuple(map(_row, able[:OFFERS_SHOWN]))
        return UnmetRequirements(
            _needs(spec, market, count), shown, tuple(_awaited(decision, count))
        )
    if decision is not None and _waits_by_choice(decision):
        ways, fits = ([] if fits else ways), False
        ways = [*_awaited(decision, count), *ways]
    if market is Market.SPOT and not fits:
        other = queue_need(spec, Market.ON_DEMAND, count, limits)
        ways += _on_demand(rank_offers(quoted, other, now), other, _forced_at(spec, job, now))
    if not ways and not able:
        ways = [_other_terms(rank_offers(quoted, need, now), need)]
    return UnmetRequirements(
        _needs(spec, market, count), tuple(map(_row, able[:OFFERS_SHOWN])), tuple(ways)
    )


def require_docker(jobs: JobReports, spec: JobSpec) -> None:
    """Raises SpecError for an image that the machines of no pool that is known can run."""
    if spec.image is None:
        return
    need = need_of(spec, Market.SPOT, spec.nodes.least)
    settings = docker_settings([Offer.from_quote(row) for row in quoted_pools(jobs, spec)], need)
    if settings is not None:
        raise SpecError.of(
            "image: the machines that this job could use have no docker: name a machine image with "
            f"docker and NVIDIA's container toolkit in {settings}, or leave `image` out",
            "image",
            ProblemKind.IMPOSSIBLE,
        )


def _other_terms(considered: Sequence[RankedOffer], need: Need) -> Remedy:
    """Of a job that no wait helps: nothing that is known has what it asks for."""
    settings = docker_settings([item.offer for item in considered], need)
    if settings is not None:
        told = (
            "Machines with docker, for its `image`: name a machine image with docker in "
            f"{settings}."
        )
        return Remedy(told, None, None)
    lack = what_all_lack(considered, need)
    why = "no known pool has that GPU" if lack is None else lack.why
    return Remedy(f"Waiting will not help: change the job's spec ({why}).", None, None)


def _waits_by_choice(decision: PlacementDecision) -> bool:
    return decision.verdict is DecisionVerdict.WAIT and any(row.fits for row in decision.pools)


def _is_held_back(decision: PlacementDecision) -> bool:
    """Whether it waits for what people have set against its machines, wherever they are offered."""
    return decision.verdict is DecisionVerdict.WAIT and decision.reason in _HELD_BACK


def _awaited(decision: PlacementDecision, count: int) -> Iterable[Remedy]:
    """What the decision itself waits for."""
    if decision.unblock is None:
        return
    said, price = decision.unblock.sentence.rstrip("."), decision.unblock.microusd_per_hour
    told = said[:1].upper() + said[1:]
    if price is None or "$" in told:
        yield Remedy(f"{told}.", None, None if price is None else price * count)
    else:
        yield Remedy(f"{told}: {_price(price, count)}.", None, price * count)


def _forced_at(spec: JobSpec, job: Job | None, now: datetime) -> datetime | None:
    """When the deadline makes the job leave spot by itself; None where it does not."""
    if job is None or job.last_safe_at is None or spec.effective_market() == "spot":
        return None
    return max(now, job.last_safe_at)


def _ways_out(able: Sequence[RankedOffer], need: Need, now: datetime) -> Iterable[Remedy]:
    """The nearest way out of each kind: `nearest_miss` picks the pool, here as in its sentence."""
    fitting = [item.offer for item in able if item.fits]
    if fitting:
        yield _way(f"{_where(fitting[0])} fits now", fitting[0], need.count)
        return
    near = {
        verdict: nearest_miss(item for item in able if item.verdict is verdict)
        for verdict in {item.verdict for item in able}
    }
    old, full = near.get(FitVerdict.QUOTE_TOO_OLD), near.get(FitVerdict.FULL)
    if old is not None:
        newest = old.offer
        age = format_duration((now - newest.quoted_at).total_seconds())
        told = f"A fresh price for {_where(newest)}: the last one is {age} old."
        yield Remedy(told, newest.pool, None)
    if full is not None:
        free = f"{_machines(need.count)} free in {_where(full.offer)}"
        yield _way(f"{free}, which has {full.offer.available} now", full.offer, need.count)
    rests = near.get(FitVerdict.RESTING)
    if rests is not None and rests.cool_until is not None:
        rest = f"The end of the cool-down of {_where(rests.offer)} after a refusal"
        yield _way(f"{rest} at {clock_time(rests.cool_until)}", rests.offer, need.count)
    dear = near.get(FitVerdict.TOO_DEAR)
    if dear is not None:
        nearest, limit = dear.offer, need.max_price_ratio
        most = int(nearest.on_demand_microusd_per_hour * limit)
        told = (
            f"A price of at most {_per_hour(most)} in {_where(nearest)}, "
            f"{percent(limit)} of on-demand; now it is "
            f"{_per_hour(nearest.price_microusd_per_hour)}."
        )
        yield Remedy(told, nearest.pool, most * need.count)


def _on_demand(
    considered: Sequence[RankedOffer], need: Need, forced_at: datetime | None
) -> Iterable[Remedy]:
    """What it would cost not to wait; forced_at: when the deadline ends the wait."""
    fitting = [item.offer for item in considered if item.fits]
    if not fitting:
        return
    where = _where(fitting[0])
    if forced_at is None:
        yield _way(
            f"`market: on_demand` in its spec, which starts it in {where} now",
            fitting[0],
            need.count,
        )
        return
    told = (
        f"Its last safe moment, {format_instant(forced_at)}, when on-demand machines are requested"
    )
    yield _way(f"{told} in {where}", fitting[0], need.count)


def _needs(spec: JobSpec, market: Market, count: int) -> str:
    gpus = " or ".join(choice.words for choice in spec.gpu_choices) or "any GPU that fits"
    words = {"auto": "spot or on-demand", "on_demand": "on-demand"}.get(
        spec.effective_market(), "spot"
    )
    if market is Market.ON_DEMAND:
        words = "on-demand"
    types = f" ({' or '.join(spec.instance_types)})" if spec.instance_types else ""
    machines = f"{spec.nodes} machines" if spec.nodes.is_elastic else _machines(count)
    needed = f"{machines}{types} with {gpus}, {words}"
    if words == "on-demand":
        return needed
    return f"{needed}, at no more than {percent(spec.max_price_ratio)} of on-demand"


def _row(item: RankedOffer) -> OfferRow:
    offer = item.offer
    return OfferRow(
        offer.pool,
        offer.price_microusd_per_hour,
        offer.cost_microusd_per_hour,
        offer.billing_speed,
        offer.on_demand_ratio,
        offer.available,
        item.fits,
        item.why,
    )


def _way(told: str, offer: Offer, count: int) -> Remedy:
    price = offer.price_microusd_per_hour
    return Remedy(f"{told}: {_price(price, count)}.", offer.pool, count * price)


def _price(microusd_per_hour: int, count: int) -> str:
    each = _per_hour(microusd_per_hour)
    if count == 1:
        return each
    return f"{each} each, {_per_hour(count * microusd_per_hour)} together"


def _where(offer: Offer) -> str:
    return f"{offer.pool.zone} ({offer.pool.instance_type})"


def _machines(count: int) -> str:
    return "1 machine" if count == 1 else f"{count} machines"


def _per_hour(microusd: int) -> str:
    return f"{format_usd(microusd, 3)}/h"
