"""One simulated run of a job, from submission to its end.

It keeps the product's bounds by a simpler rule: the cheapest pool that has machines, waiting where
none has, on-demand machines from the last safe moment on. Here: that run, and the question it
answers. Not here: the pools (`simulated_pools`), figures over many runs (`job_estimate`), or the
product's own choice, which weighs costs (`placement_choice`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from app.domain.availability.hazard_by_age import (
    NO_EXPERIENCE,
    TAKEN_PER_HOUR,
    Experience,
    mean_seconds,
    seconds_until,
)
from app.domain.availability.hazard_models import PoolPosterior, posterior
from app.domain.estimate.simulated_pools import SimulatedPool, simulated_pools
from app.domain.placement.expected_cost import useful_hour_microusd
from app.domain.placement.patience import WORTH_SHARE, Patience, back_chance, saved_share

TURNS_MAX = 250
"""Machines that one simulated run loses one by one; what is left of a longer run goes on at the
pace and the price of what was simulated: so many losses tell the time lost with them to a
twentieth."""

PACE_LEAST = 0.01
"""A long run that is slower, against the machine that the work is told for, is no run at all: it
counts as never ending."""


@dataclass(frozen=True)
class PoolQuote:
    """A pool that fits: its price per hour for the whole gang, and what is known of its life.

    speed: work done in a second, relative to the machine that `EstimateInput.work_seconds` is told
    for; speed_source: how it is known, in words. minimum_seconds: charged at least for a machine
    that we end, and not for one that its cloud takes (`billing_rules`). billing_speed: billed
    seconds per second, as of an offer.
    """

    key: str
    microusd_per_hour: int
    speed: float = 1.0
    experience: Experience = NO_EXPERIENCE
    speed_source: str = ""
    minimum_seconds: float = 0.0
    billing_speed: int = 1

    def microusd(self, seconds: float, *, taken: bool = False) -> float:
        """What the gang costs for so long; taken: its cloud ended it."""
        billed = seconds * self.billing_speed
        charged = billed if taken else max(billed, self.minimum_seconds)
        return self.microusd_per_hour * charged / 3_600


@dataclass(frozen=True)
class EstimateInput:
    """One job. Durations in seconds, money in micro-USD for the whole gang.

    spot: pools that fit, cheapest work first. on_demand: None where it is not allowed or not had.
    boot_seconds: from the request to training, each time a machine is rented, restore included.
    rework_seconds: work lost with a machine that is taken without a notice in time.
    patience_seconds: how long a clearly cheaper pool is waited for, each time. gang: machines, of
    which each may be taken and stops all of them.
    """

    work_seconds: float
    spot: tuple[PoolQuote, ...]
    on_demand: PoolQuote | None
    boot_seconds: float
    acquire_seconds: float
    rework_seconds: float = 0.0
    deadline_seconds: float | None = None
    budget_microusd: int | None = None
    patience_seconds: float = 0.0
    gang: int = 1


@dataclass(frozen=True)
class SimulatedRun:
    """One simulated run: `finish_seconds` is infinite when it never ends.

    reserved_seconds: how much later it ends where on-demand machines take their whole reserve.
    """

    microusd: float
    finish_seconds: float
    interruptions: float
    reserved_seconds: float = 0.0

    def meets(self, deadline_seconds: float) -> bool:
        """Whether the deadline is kept although on-demand machines take their whole reserve."""
        return self.finish_seconds + self.reserved_seconds <= deadline_seconds


def simulated_run(
    question: EstimateInput,
    known: Sequence[PoolPosterior],
    draw: Callable[[], float],
    turns_max: int = TURNS_MAX,
) -> SimulatedRun:
    """One run; known: what is believed of each of the question's spot pools.

    draw: uniform in [0, 1). turns_max: machines that are lost one by one.
    """
    now, left, spent, taken = 0.0, question.work_seconds, 0.0, 0
    pools = simulated_pools(known, draw)
    since, others = now, _Others(question.gang - 1, draw)
    for _ in range(turns_max):
        wait_most = _wait_most(question, now, left)
        if not pools or wait_most <= 0:
            return _on_demand(question, now, left, spent, taken)
        place = next((place for place, pool in enumerate(pools) if pool.at(now)), None)
        if place is None:
            back = min(pool.until for pool in pools)
            if back - now > wait_most:
                return _on_demand(question, now + wait_most, left, spent, taken)
            now = back
            continue
        patience = Patience(since + question.patience_seconds - now, now - since, left)
        if place > 0 and _waits(question, place, patience):
            now = min(now + patience.left_seconds, *(pool.until for pool in pools[:place]))
            continue
        quote = question.spot[place]
        needed = question.boot_seconds + left / quote.speed
        lives = min(pools[place].until, others.until(place, pools[place], now)) - now
        used = min(
            lives, needed, question.boot_seconds + _slack_at(question, wait_most, quote.speed)
        )
        spent += quote.microusd(used, taken=used == lives and lives < needed)
        now += used
        worked = max(0.0, used - question.boot_seconds) * quote.speed
        if used >= needed:
            return SimulatedRun(spent, now, taken)
        if used < lives:
            return _on_demand(question, now, left - worked, spent, taken)
        taken, since = taken + 1, now
        left -= max(0.0, worked - question.rework_seconds * draw())
    return _the_rest(question, now, left, spent, taken)


class _Others:
    """The other machines of a gang, which may be taken from a pool that has more of them.

    Those that are left are kept, as the product does; the pool's own end takes all of them.
    """

    def __init__(self, count: int, draw: Callable[[], float]) -> None:
        self._count, self._draw = count, draw
        self._place, self._pool_until = -1, 0.0
        self._ends: list[float] = []

    def until(self, place: int, pool: SimulatedPool, now: float) -> float:
        """When the first of them is taken; infinite where there are none."""
        if (place, pool.until) != (self._place, self._pool_until):
            self._place, self._pool_until = place, pool.until
            self._ends = [0.0] * self._count
        for number, end in enumerate(self._ends):
            if end <= now:
                life = seconds_until(TAKEN_PER_HOUR, pool.taken, self._draw())
                self._ends[number] = now + max(1.0, life)
        return min(self._ends, default=math.inf)


def _slack_at(question: EstimateInput, wait_most: float, pace: float) -> float:
    """How long work may go on at a pace before the last safe moment, which comes if it is slow."""
    if question.on_demand is None or pace >= question.on_demand.speed:
        return math.inf
    return max(0.0, wait_most) / (1 - pace / question.on_demand.speed)


def _the_rest(
    question: EstimateInput, now: float, left: float, spent: float, taken: int
) -> SimulatedRun:
    """A long run from here on as it went so far, until its slack ends."""
    pace = 0.0 if now <= 0 else (question.work_seconds - left) / now
    ends = left / pace if pace >= PACE_LEAST else math.inf
    until = min(ends, _slack_at(question, _wait_most(question, now, left), pace))
    if now <= 0 or math.isinf(until):
        return SimulatedRun(spent, math.inf, taken)
    spent, losses = spent * (1 + until / now), taken * (1 + until / now)
    if until < ends:
        return _on_demand(question, now + until, left - until * pace, spent, losses)
    return SimulatedRun(spent, now + ends, losses)


def _waits(question: EstimateInput, place: int, patience: Patience) -> bool:
    """Whether a pool at hand is left for a cheaper one that may come back, as the product does."""
    if patience.left_seconds <= 0:
        return False
    hours = [_hour_of_work(question, pool) for pool in question.spot[: place + 1]]
    back = back_chance(patience.waited_seconds, patience.left_seconds)
    return any(
        back * saved_share(hours[place], hour, life, patience) >= WORTH_SHARE
        for hour, life in zip(hours[:place], _lives(question), strict=False)
    )


def _hour_of_work(question: EstimateInput, pool: PoolQuote) -> float:
    factor = posterior(pool.experience).hazard_factor * question.gang
    return useful_hour_microusd(pool.microusd_per_hour / pool.speed, factor, question.boot_seconds)


def _lives(question: EstimateInput) -> Iterator[float]:
    for pool in question.spot:
        yield mean_seconds(TAKEN_PER_HOUR, posterior(pool.experience).hazard_factor * question.gang)


def _wait_most(question: EstimateInput, now: float, left: float) -> float:
    """How long on-demand may still be put off; infinite without deadline or on-demand pool."""
    if question.deadline_seconds is None or question.on_demand is None:
        return math.inf
    needed = question.acquire_seconds + question.boot_seconds + left / question.on_demand.speed
    # A spot machine that is taken while it boots has used the time without any work.
    return question.deadline_seconds - needed - question.boot_seconds - now


def _on_demand(
    question: EstimateInput, now: float, left: float, spent: float, taken: float
) -> SimulatedRun:
    """From here on with on-demand machines, which may take the reserve to get, and no money."""
    pool = question.on_demand
    if pool is None:
        return SimulatedRun(spent, math.inf, taken)
    used = question.boot_seconds + left / pool.speed
    return SimulatedRun(spent + pool.microusd(used), now + used, taken, question.acquire_seconds)
