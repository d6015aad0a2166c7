"""Which pools a gang may be rented in, cheapest progress first, and why others are not taken.

Lives here: the fit of an offer to a need, and the order of those that fit: by what an hour of
progress is expected to cost there. Not here: when to wait or to leave spot (`placement_choice`,
`deadline_policy`), or the call that rents (`app.orchestration`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from operator import itemgetter
from typing import NamedTuple

import orjson

from app.domain.availability.hazard_models import USUAL_FACTOR
from app.domain.billing.egress import Restore, added_microusd_per_hour, told
from app.domain.market.gpu_choice import GpuChoice, gpu_words
from app.domain.market.machine_need import NO_NEED, MachineNeed, carries_gpus, lacks
from app.domain.market.offer import Hardware, Market, Offer, Pool
from app.domain.placement.expected_cost import useful_hour_microusd
from app.domain.placement.fit_verdict import FitVerdict, Obstacle
from app.domain.spec.infra_choice import InfraChoice
from app.domain.spec.job_spec import JobSpec
from app.domain.spec.trainer_work import trainer_memory_gb
from app.domain.throughput.gpu_throughput import NOTHING_MEASURED, GpuThroughput, gpu_shape_of
from app.domain.units.durations import format_duration
from app.domain.units.instants import clock_time, format_instant
from app.domain.units.money import format_usd
from app.domain.units.percent import percent

QUOTE_AGE_MAX = timedelta(hours=6)
"""An older price is not acted on, unless the deployment says otherwise."""

_FACTOR_TOLD = 0.05
"""A hazard this near to the usual one is not worth a word."""

RUN_GPU_MEMORY_GB_MIN = 16
"""A `run` that names no GPU gets one with at least this much memory."""


@dataclass(frozen=True)
class PlacementDomain:
    """Where a gang's machines must be together: one zone, one type of machine."""

    provider: str
    region: str
    zone: str
    instance_type: str

    @staticmethod
    def of(pool: Pool) -> PlacementDomain:
        """The domain of a pool, whatever its market."""
        return PlacementDomain(pool.provider, pool.region, pool.zone, pool.instance_type)


@dataclass(frozen=True)
class Need:
    """What one launch asks for.

    count: machines, all in one zone; gang: those of the whole gang, which stops when any of them is
    taken, while a launch may ask for the missing ones only. domain: where survivors wait, None when
    free to choose. last_choice: pools that serve only when no other fits (they have just
    interrupted us). machine: what a machine needs beside its GPUs. types: the acceptable types of
    machine, all of them when empty. restore: what each machine has to bring before it can go on.
    quote_age_max: an older price is not acted on. restart_seconds: from the request of machines
    until work goes on, each time they are taken; with 0 the price alone decides. order: pools as a
    deadline makes them worth, best first; those that are not in it come after them. alike: whether
    an hour of one machine counts as much as of another; else speeds: how fast their kinds work.
    """

    gpu_choices: tuple[GpuChoice, ...]
    gpu_memory_gb_min: int
    count: int
    market: Market
    infra: tuple[InfraChoice, ...]
    max_price_ratio: float
    domain: PlacementDomain | None = None
    last_choice: frozenset[Pool] = frozenset()
    machine: MachineNeed = NO_NEED
    types: tuple[str, ...] = ()
    restore: Restore | None = None
    quote_age_max: timedelta = QUOTE_AGE_MAX
    restart_seconds: float = 0.0
    order: tuple[Pool, ...] = ()
    gang: int = 1
    alike: bool = True
    speeds: GpuThroughput = NOTHING_MEASURED


@dataclass(frozen=True)
class RankedOffer:
    """One offer with the verdict, and the sentence for people.

    cool_until: when a pool that cools down may be asked again; None for any other verdict.
    obstacle: where people hold its machines back.
    """

    offer: Offer
    verdict: FitVerdict
    why: str
    cool_until: datetime | None = None
    obstacle: Obstacle | None = None

    @property
    def fits(self) -> bool:
        """Whether machines may be requested there now."""
        return self.verdict.fits


def need_of(spec: JobSpec, market: Market, count: int) -> Need:
    """The need of a launch of a whole gang, before survivors and history narrow it."""
    return Need(
        gpu_choices=spec.gpu_choices,
        gpu_memory_gb_min=gpu_memory_gb_min(spec),
        count=count,
        market=market,
        infra=spec.infra or (),
        max_price_ratio=spec.max_price_ratio,
        machine=spec.machine_need,
        types=spec.instance_types or (),
        gang=count,
        alike=work_alike(spec),
    )


def gpu_memory_gb_min(spec: JobSpec) -> int:
    """The memory that a GPU must have at least, in GB, where the spec names none."""
    if spec.command_kind == "run":
        return RUN_GPU_MEMORY_GB_MIN
    return 0 if spec.gpu_choices else trainer_memory_gb(spec)


def capacity_key(spec: JobSpec) -> str:
    """Equal for jobs that any "no offer" verdict concerns alike."""
    parts = [
        sorted(str(choice) for choice in spec.gpu_choices),
        spec.command_kind,
        gpu_memory_gb_min(spec),
        spec.nodes.to_json(),
        sorted(str(place) for place in spec.infra or ()),
        spec.effective_market(),
        spec.max_price_ratio,
        str(spec.machine_need),
        spec.instance_types or (),
        *((spec.patience_seconds,) if spec.patience_seconds else ()),
    ]
    return hashlib.sha256(orjson.dumps(parts)).hexdigest()[:16]


def rank_offers(
    offers: Iterable[tuple[Offer, datetime | None]], need: Need, now: datetime
) -> tuple[RankedOffer, ...]:
    """Every offer with its verdict: those that fit first, cheapest progress first, ties by pool.

    An offer costs its price, what comes with the machine, and what bringing the checkpoint adds; on
    spot, over the share of the time that is expected to become progress. Where a need names several
    GPUs, cheapest means for the work that they are expected to do. `offers` come with the end of
    their cool-down. Raising one offer's price, or what it adds, can only move it back.
    """
    ranks = {pool: rank for rank, pool in enumerate(need.order)}
    judged = []
    for offer, cool_until in offers:
        pace = _Pace(hour_of_progress(offer, need), work_speed(offer, need))
        item = _judge(offer, cool_until, need, now, pace)
        pool, cost = offer.pool, pace.hour_microusd / pace.speed
        rank = ranks.get(pool, len(ranks))
        judged.append(((not item.fits, pool in need.last_choice, rank, cost, pool), item))
    judged.sort(key=itemgetter(0))
    return tuple(item for _, item in judged)


class _Pace(NamedTuple):
    """What an hour of an offer's own progress costs, and how fast that is against a V100.

    Worked out once for each of thousands of offers.
    """

    hour_microusd: float
    speed: float


def bids_for_best_region(considered: Iterable[RankedOffer]) -> tuple[Offer, ...]:
    """The offers one launch may bid on: those that fit, of the first one's provider and region.

    One call goes to one cloud endpoint; other regions get their own call when this one fails.
    Nor does it bid on a pool that has just interrupted the job beside another: of the pools that it
    bids on a cloud takes the one that suits itself.
    """
    able = [item for item in considered if item.fits]
    others = [item for item in able if item.verdict is FitVerdict.FITS]
    fitting = [item.offer for item in others or able]
    if not fitting:
        return ()
    first = fitting[0].pool
    return tuple(
        offer
        for offer in fitting
        if (offer.pool.provider, offer.pool.region) == (first.provider, first.region)
    )


def _judge(
    offer: Offer, cool_until: datetime | None, need: Need, now: datetime, pace: _Pace
) -> RankedOffer:
    reason = _mismatch(offer, need)
    if reason is not None:
        return RankedOffer(offer, FitVerdict.UNSUITABLE, reason)
    unusable = _unusable(offer, cool_until, need, now)
    if unusable is not None:
        verdict, why = unusable
        rests = verdict is FitVerdict.RESTING
        return RankedOffer(offer, verdict, why, cool_until if rests else None)
    just_here = offer.pool in need.last_choice
    hazard = _hazard_told(offer, need, pace, just_here=just_here)
    more = f"{told(need.restore, offer)}{hazard}{_speed_told(offer, need, pace)}"
    if just_here:
        why = f"fits, but has just interrupted this job{more}"
        return RankedOffer(offer, FitVerdict.INTERRUPTED_HERE, why)
    return RankedOffer(offer, FitVerdict.FITS, f"fits, has capacity for {need.count}{more}")


def _hazard_told(offer: Offer, need: Need, pace: _Pace, *, just_here: bool) -> str:
    """What the pool's own past makes of its price; empty where it is as any other.

    The figure is that of the column Expected: where speeds count, for a V100's work. just_here: it
    has just interrupted the job, which its whole past outweighs.
    """
    factor = offer.hazard_factor / USUAL_FACTOR
    if offer.pool.market is not Market.SPOT or abs(factor - 1) < _FACTOR_TOLD:
        return ""
    times = f"{factor:.1f} × as often as usual" if factor > 1 else "less often than usual"
    cost = format_usd(round(pace.hour_microusd / pace.speed))
    hour = "an hour of training" if need.alike else "what a V100 does in an hour"
    when = "over its whole past, machines were" if just_here else "machines are"
    return f"; {when} interrupted {times} there: {hour} costs {cost}"


def _speed_told(offer: Offer, need: Need, pace: _Pace) -> str:
    """How fast it does the work, and how that is known; empty where all machines are alike."""
    if need.alike:
        return ""
    known = need.speeds.source(gpu_shape_of(offer.hardware))
    return f"; {pace.speed:.2f} × the speed of a V100, {known}"


def _mismatch(offer: Offer, need: Need) -> str | None:
    """Why this pool could never serve the need, or None."""
    pool, hardware = offer.pool, offer.hardware
    if pool.market is not need.market:
        return "not in the requested market"
    if need.domain is not None and PlacementDomain.of(pool) != need.domain:
        return "not where the rest of the gang is"
    if not inside(pool, need.infra):
        return "not in the places listed in `infra`"
    if not of_types(pool, need.types):
        return f"is a {pool.instance_type}, which is not in `instance_types`"
    if carries(offer, need):
        return None
    missing = lacks(hardware, need.machine)
    if lacks_docker(offer, need):
        return f"{missing}: name one with docker in {image_setting(pool)}"
    if missing is not None and carries_gpus(hardware, need.gpu_choices, need.gpu_memory_gb_min):
        return missing
    if need.gpu_choices:
        return f"has {_gpus(hardware)}, which was not requested"
    return f"its GPU has {hardware.gpu_memory_gb} GB; the job needs {need.gpu_memory_gb_min}"


def _gpus(hardware: Hardware) -> str:
    return gpu_words(hardware.gpu_name, hardware.gpu_count, hardware.gpu_memory_gb)


def _unusable(
    offer: Offer, cool_until: datetime | None, need: Need, now: datetime
) -> tuple[FitVerdict, str] | None:
    """Why this pool cannot serve now, or None."""
    age = now - offer.quoted_at
    if age > need.quote_age_max:
        told = f"its price is from {format_instant(offer.quoted_at)}, {_span(age)} old"
        most = f"too old to act on (the limit is {_span(need.quote_age_max)})"
        return FitVerdict.QUOTE_TOO_OLD, f"{told}: {most}"
    if need.market is Market.SPOT and offer.on_demand_ratio > need.max_price_ratio:
        ratio, most = percent(offer.on_demand_ratio), percent(need.max_price_ratio)
        why = f"costs {ratio} of on-demand, above the limit of {most}"
        return FitVerdict.TOO_DEAR, why
    if offer.available is not None and offer.available < need.count:
        return FitVerdict.FULL, f"has capacity for {offer.available} of {need.count}"
    if cool_until is not None and cool_until > now:
        return FitVerdict.RESTING, f"cooling down until {clock_time(cool_until)}"
    return None


def _span(age: timedelta) -> str:
    return format_duration(age.total_seconds())


def inside(pool: Pool, places: Iterable[InfraChoice]) -> bool:
    """Whether a pool is at one of the places asked for; no places mean anywhere."""
    asked = tuple(places)
    return not asked or any(
        pool.provider == place.provider
        and place.region in (None, pool.region)
        and place.zone in (None, pool.zone)
        for place in asked
    )


def of_types(pool: Pool, types: tuple[str, ...]) -> bool:
    """Whether a pool's machines are of a type asked for; no types mean any."""
    return not types or pool.instance_type in types


def carries(offer: Offer, need: Need) -> bool:
    """Whether a pool's machines have the GPUs, and all else, that is needed."""
    hardware = offer.hardware
    return (
        carries_gpus(hardware, need.gpu_choices, need.gpu_memory_gb_min)
        and lacks(hardware, need.machine) is None
    )


def lacks_docker(offer: Offer, need: Need) -> bool:
    """Whether a pool's machines lack nothing but docker, which the job's image needs."""
    if not need.machine.containers or offer.hardware.containers:
        return False
    return carries(offer, replace(need, machine=replace(need.machine, containers=False)))


def image_setting(pool: Pool) -> str:
    """The variable that names the image of the pool's machines."""
    return f"LOWTIDE_{pool.provider.upper()}_IMAGE"


def progress_cost(offer: Offer, need: Need) -> float:
    """What an hour of progress costs, micro-USD; of a V100's where different GPUs are accepted."""
    return hour_of_progress(offer, need) / work_speed(offer, need)


def hour_of_progress(offer: Offer, need: Need) -> float:
    """What an hour of this pool's own progress costs, in micro-USD for each machine."""
    price = offer.cost_microusd_per_hour + added_microusd_per_hour(need.restore, offer.pool)
    factor = gang_hazard_factor(offer, need)
    if factor is None or not need.restart_seconds:
        return price
    return useful_hour_microusd(price, factor, need.restart_seconds)


def gang_hazard_factor(offer: Offer, need: Need) -> float | None:
    """By how much more often than one usual machine the gang is interrupted; None: never.

    One lost machine stops all, so that the hazards of its machines add up.
    """
    return offer.hazard_factor * need.gang if offer.pool.market is Market.SPOT else None


def work_alike(spec: JobSpec) -> bool:
    """Whether an hour of one accepted machine counts as much as of another.

    So it does for one kind of GPU; and where none is named and the work is not told, for then
    nobody knows whether it would gain from a machine that is faster and dearer.
    """
    if not spec.gpu_choices:
        return spec.estimate is None
    names = {choice.name for choice in spec.gpu_choices}
    return len(names) == 1 and None not in names


def work_speed(offer: Offer, need: Need) -> float:
    """How fast a machine there works, against a V100; 1 where all that are accepted are alike."""
    return 1.0 if need.alike else need.speeds.of(gpu_shape_of(offer.hardware))
