"""Pools as they may turn out: drawn from what is known of them, up and down for one simulated run.

By which factors a pool departs from the usual hazards is not known, only how likely each pair of
them is (`hazard_models`). Each simulated run draws a pair anew, so that an estimate is as wide as
knowledge is poor. What a job does with the pools is for `simulated_run`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from app.domain.availability.hazard_by_age import (
    AGE_EDGES_SECONDS,
    BACK_PER_HOUR,
    TAKEN_PER_HOUR,
    cumulated_hazard,
    mean_seconds,
    seconds_until,
)
from app.domain.availability.hazard_models import PoolPosterior, cycle_seconds, up_share

SHARED_LUCK: Final = 0.6
"""How often a pool turns out as good or as bad, for what is known of it, as the others do."""

FORGOTTEN_CYCLES: Final = 20
"""After so many times up and down that nobody looked at, a pool is met as at any time: what it was
before tells nothing, and a run of months would be long in going through all of them."""

_TINY: Final = 1e-12


def simulated_pools(
    known: Sequence[PoolPosterior], draw: Callable[[], float]
) -> list[SimulatedPool]:
    """The pools of one run; draw: uniform in [0, 1)."""
    shared = draw()
    return [
        SimulatedPool(one.pair(shared if draw() < SHARED_LUCK else draw()), draw) for one in known
    ]


class SimulatedPool:
    """One pool in one run: up or down, and until when. Time never runs backwards."""

    def __init__(self, factors: tuple[float, float], draw: Callable[[], float]) -> None:
        """factors: of being taken and of coming back."""
        self._draw = draw
        self.taken, self.back = factors
        self._up_share = up_share(factors)
        self._forgotten_seconds = FORGOTTEN_CYCLES * cycle_seconds(factors)
        self.up, self.until = False, 0.0
        self._meet(0.0)

    def at(self, now: float) -> bool:
        """Whether it has machines at this time, not before any that was asked about."""
        if now - self.until > self._forgotten_seconds:
            self._meet(now)
        while self.until <= now:
            self.up = not self.up
            hazards, factor = self._now()
            self.until += self._life(hazards, factor, 0.0)
        return self.up

    def _meet(self, now: float) -> None:
        """The pool at any time: a state is then as old as the share of time at each age has it."""
        self.up = self._draw() >= 1 - self._up_share
        hazards, factor = self._now()
        age = age_at_any_time(hazards, factor, self._draw())
        self.until = now + self._life(hazards, factor, age)

    def _now(self) -> tuple[Sequence[float], float]:
        return (TAKEN_PER_HOUR, self.taken) if self.up else (BACK_PER_HOUR, self.back)

    def _life(self, hazards: Sequence[float], factor: float, age: float) -> float:
        """Seconds that a state of this age goes on for."""
        passed = -math.expm1(-cumulated_hazard(hazards, factor, age)) if age else 0.0
        return max(1.0, seconds_until(hazards, factor, passed + (1 - passed) * self._draw()) - age)


def age_at_any_time(hazards_per_hour: Sequence[float], factor: float, draw: float) -> float:
    """The age in seconds, at a random moment, of a state that ends by these hazards.

    By inversion: the chance of an age is in proportion to the share of states that live so long.
    """
    target = draw * mean_seconds(hazards_per_hour, factor)
    begin, alive, total = 0.0, 1.0, 0.0
    for hazard, end in zip(hazards_per_hour, (*AGE_EDGES_SECONDS, math.inf), strict=True):
        rate = hazard * factor / 3_600
        survived = 0.0 if end == math.inf else math.exp(-rate * (end - begin))
        within = alive * (1 - survived) / rate
        if total + within >= target or end == math.inf:
            share = min(1 - _TINY, max(0.0, (target - total) * rate / alive))
            return begin - math.log1p(-share) / rate
        total, alive, begin = total + within, alive * survived, end
    raise AssertionError("the last age has no end")
