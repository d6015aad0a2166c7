"""Why nothing can be rented for a job now, in one sentence for the person who waits for it.

Not here: the verdict on a single pool (`placement`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from app.domain.market.gpu_choice import gpu_words
from app.domain.market.offer import Offer, Pool
from app.domain.placement.fit_verdict import FitVerdict
from app.domain.placement.launch_room import obstacle_of
from app.domain.placement.placement import (
    Need,
    RankedOffer,
    carries,
    image_setting,
    inside,
    lacks_docker,
    of_types,
)
from app.domain.spec.spec_value import nearest as nearest_word

_NAMES_MAX = 8
# What passes by itself comes first.
_NEAREST = (
    FitVerdict.RESTING,
    FitVerdict.FULL,
    FitVerdict.TOO_DEAR,
    FitVerdict.QUOTE_TOO_OLD,
)
_NEAREST_BY = {
    FitVerdict.RESTING: "the first that may be asked again",
    FitVerdict.TOO_DEAR: "the cheapest against on-demand",
    FitVerdict.QUOTE_TOO_OLD: "the one with the newest price",
}


@dataclass(frozen=True, slots=True)
class Lack:
    """What no pool has, in words without a full stop, and the field of the spec that asks for it.

    `field` is None where the deployment is to be changed, which the words say.
    """

    why: str
    field: str | None


def why_none_fits(considered: Sequence[RankedOffer], need: Need) -> str:
    """The first thing that no pool has: place, type, machine, market; else what people have set
    against the machines of a pool; else the nearest miss.

    Without a full stop. `considered` are all pools, none of which fits.
    """
    if not considered:
        return "no prices are known yet for any pool"
    lack = what_all_lack(considered, need)
    if lack is not None:
        return lack.why
    near = [item for item in considered if item.verdict is not FitVerdict.UNSUITABLE]
    if not near:
        return f"no {_market(need)} pool is in the zone of the job's other machines"
    obstacle = obstacle_of(near)
    if obstacle is not None:
        return obstacle.sentence
    patient = next((item for item in near if item.verdict is FitVerdict.WAITING_SAVES), None)
    if patient is not None:
        return patient.why
    return _nearest_miss(near, need)


def what_all_lack(considered: Sequence[RankedOffer], need: Need) -> Lack | None:
    """What no pool has, however long the job waits; None where one may serve it later.

    The place of the job's other machines is not asked: another gang may be formed elsewhere. None
    also while no pool is known.
    """
    if not considered:
        return None
    there = [item for item in considered if inside(item.offer.pool, need.infra)]
    if not there:
        asked = " or ".join(str(place) for place in need.infra)
        known = ", ".join(sorted({item.offer.pool.provider for item in considered}))
        told = f"this deployment rents nothing in {asked}; it has pools at {known} only"
        return Lack(told, "infra")
    typed = [item for item in there if of_types(item.offer.pool, need.types)]
    if not typed:
        types = sorted({item.offer.pool.instance_type for item in there})
        hint = nearest_word(need.types[0], types).removesuffix("?")
        told = f"no pool there has machines of type {' or '.join(need.types)}{hint}"
        return Lack(told, "instance_types")
    able = [item for item in typed if carries(item.offer, need)]
    if not able:
        settings = docker_settings([item.offer for item in typed], need)
        if settings is not None:
            told = (
                "the machine images there have no docker, which the job's `image` needs: name an "
                f"image with docker in {settings}"
            )
            return Lack(told, None)
        return Lack(f"no pool has {_machine(need)}; there are {_machines(typed)}", "resources")
    if not any(item.offer.pool.market is need.market for item in able):
        return Lack(
            f"no {_market(need)} pool has {_machine(need)}; another market has it", "market"
        )
    return None


def _market(need: Need) -> str:
    return need.market.value.replace("_", "-")


def nearest_miss(considered: Iterable[RankedOffer]) -> RankedOffer:
    """The pool that comes closest, by the figure that people read about it.

    The same from look to look while those figures stay: of pools with equal ones it is the cheapest
    by half doublings of the price per hour, which seldom change, then the first in the order of
    full prices and of names. Raises ValueError for no pools.
    """
    return min(considered, key=_distance)


def _nearest_miss(near: Sequence[RankedOffer], need: Need) -> str:
    """The pool that comes closest, where all of them would do at another time."""
    item, pools = nearest_miss(near), len(near)
    pool, free = item.offer.pool, item.offer.available or 0
    where = f"{pool.zone} ({pool.instance_type})"
    if item.verdict is FitVerdict.FULL:
        machines = "a free machine" if need.count == 1 else f"{need.count} free machines"
        if pools == 1:
            return f"no suitable pool has {machines}; the only one, {where}, has {free or 'none'}"
        full = sum(one.verdict is FitVerdict.FULL for one in near)
        if not free and full > 1:
            return f"no suitable pool has {machines}; {full} pools, such as {where}, have none"
        return f"no suitable pool has {machines}; of {pools} pools, {where} has most: {free}"
    if pools == 1:
        return f"the only suitable pool, {where}: {item.why}"
    nearest = _NEAREST_BY.get(item.verdict, "the closest")
    return f"none of {pools} suitable pools can be used now; {nearest}, {where}: {item.why}"


def docker_settings(offers: Iterable[Offer], need: Need) -> str | None:
    """The variables that name the machines' images, where docker is all that pools lack.

    None where a pool that is known has all that is needed, and where none has all but docker.
    """
    there = [
        one for one in offers if inside(one.pool, need.infra) and of_types(one.pool, need.types)
    ]
    if any(carries(one, need) for one in there):
        return None
    return (
        " or ".join(sorted({image_setting(i.pool) for i in there if lacks_docker(i, need)})) or None
    )


def _distance(item: RankedOffer) -> tuple[int, float, int, int, Pool]:
    offer, verdict = item.offer, item.verdict
    kind = _NEAREST.index(verdict) if verdict in _NEAREST else len(_NEAREST)
    figure = 0.0
    if verdict is FitVerdict.RESTING and item.cool_until is not None:
        figure = item.cool_until.timestamp()
    elif verdict is FitVerdict.FULL:
        figure = -(offer.available or 0)
    elif verdict is FitVerdict.TOO_DEAR:
        figure = round(100 * offer.on_demand_ratio)  # as it is read: prices move all the time
    elif verdict is FitVerdict.QUOTE_TOO_OLD:
        figure = -offer.quoted_at.timestamp()
    # In steps that a price seldom crosses.
    cheap = round(2 * math.log2(max(1, offer.cost_microusd_per_hour)))
    return kind, figure, cheap, offer.on_demand_microusd_per_hour, offer.pool


def _machine(need: Need) -> str:
    beside = f" with {need.machine}" if str(need.machine) else ""
    if need.gpu_choices:
        return " or ".join(choice.words for choice in need.gpu_choices) + beside
    return f"a GPU with {need.gpu_memory_gb_min} GB{beside}"


def _machines(items: Sequence[RankedOffer]) -> str:
    machines = [item.offer.hardware for item in items]
    kinds = sorted({(one.gpu_name, one.gpu_count, one.gpu_memory_gb) for one in machines})
    more = f" and {len(kinds) - _NAMES_MAX} more" if len(kinds) > _NAMES_MAX else ""
    return ", ".join(gpu_words(*kind) for kind in kinds[:_NAMES_MAX]) + more
