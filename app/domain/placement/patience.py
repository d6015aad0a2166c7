"""Whether a job without a deadline waits for a clearly cheaper pool, and for how long at most.

Waiting itself costs no money, so what is weighed is what may come of it: the chance that the
cheaper pool has machines again within the patience that is left, times what its progress costs less
while its machines are expected to live. Here: that rule. Not here: the order of pools
(`placement`), or jobs with a deadline, which weigh waiting by their slack (`placement_choice`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from app.domain.availability.hazard_by_age import (
    BACK_PER_HOUR,
    TAKEN_PER_HOUR,
    cumulated_hazard,
    mean_seconds,
)
from app.domain.market.offer import Market
from app.domain.placement.fit_verdict import FitVerdict
from app.domain.placement.placement import (
    Need,
    RankedOffer,
    gang_hazard_factor,
    hour_of_progress,
    progress_cost,
)
from app.domain.units.durations import format_duration
from app.domain.units.instants import format_instant
from app.domain.units.money import format_usd
from app.domain.units.percent import percent

WORTH_SHARE = 0.05
"""What waiting must be expected to save at least, of what the work that is left costs now."""

BETTER_MAX = 10
"""The cheapest pools that a wait may be for; the others would hardly ever be worth one."""


@dataclass(frozen=True)
class Patience:
    """left_seconds: how much longer the job may wait; waited_seconds: how long it has.

    work_seconds: that is left; None where it is not known.
    """

    left_seconds: float
    waited_seconds: float
    work_seconds: float | None


def back_chance(waited_seconds: float, left_seconds: float) -> float:
    """The chance that a pool that was empty for so long has machines within so much more time."""
    until = cumulated_hazard(BACK_PER_HOUR, 1.0, waited_seconds + left_seconds)
    return -math.expm1(cumulated_hazard(BACK_PER_HOUR, 1.0, waited_seconds) - until)


def saved_share(cost: float, cost_then: float, life_seconds: float, patience: Patience) -> float:
    """What a pool that is had for sure saves, of what the work that is left costs now.

    cost, cost_then: of an hour of progress now and in that pool. Once its machines are lost the
    work goes on where it would have been without it.
    """
    if cost <= 0:
        return 0.0
    work = patience.work_seconds
    part = 1.0 if work is None or work <= life_seconds else life_seconds / work
    return (1 - cost_then / cost) * part


def patient(
    considered: Sequence[RankedOffer], need: Need, patience: Patience, now: datetime
) -> tuple[RankedOffer, ...]:
    """The same; pools that fit but are not worth taking while others may come back do not fit.

    Raising the price of a pool can only make it fit less. Without patience nothing changes.
    """
    if patience.left_seconds <= 0:
        return tuple(considered)
    able = [item for item in considered if item.fits or item.verdict.passes_by_itself]
    better = sorted(able, key=lambda item: progress_cost(item.offer, need))[:BETTER_MAX]
    lives = [_life_seconds(item, need) for item in better]
    back = back_chance(patience.waited_seconds, patience.left_seconds)
    found = []
    for item in considered:
        why = None
        if item.fits:
            why = _why_wait(item, list(zip(better, lives, strict=True)), need, patience, back, now)
        waits = FitVerdict.WAITING_SAVES
        found.append(item if why is None else replace(item, verdict=waits, why=why))
    return tuple(found)


def _why_wait(
    item: RankedOffer,
    better: Sequence[tuple[RankedOffer, float]],
    need: Need,
    patience: Patience,
    back: float,
    now: datetime,
) -> str | None:
    """Why this pool is not taken; None where it is as good as any."""
    cost, best, most, chance = progress_cost(item.offer, need), None, 0.0, 0.0
    for other, life in better:
        sure = 1.0 if other.fits and other.offer.available is not None else back
        saves = sure * saved_share(cost, progress_cost(other.offer, need), life, patience)
        if other is not item and saves > most:
            best, most, chance = other, saves, sure
    if best is None or most < WORTH_SHARE:
        return None
    until = now + timedelta(seconds=patience.left_seconds)
    pool, hour = best.offer.pool, format_usd(round(hour_of_progress(best.offer, need)))
    return (
        f"waiting is expected to save {percent(most)}: {pool.zone} ({pool.instance_type}) does an "
        f"hour of training for {hour} and has machines with a chance of {percent(chance)} by "
        f"{format_instant(until)}, when the job's patience ends "
        f"({format_duration(patience.left_seconds)} left)"
    )


def _life_seconds(item: RankedOffer, need: Need) -> float:
    """How long a gang there is expected to live."""
    if item.offer.pool.market is not Market.SPOT:
        return math.inf
    factor = gang_hazard_factor(item.offer, need)
    return math.inf if factor is None else mean_seconds(TAKEN_PER_HOUR, factor)
