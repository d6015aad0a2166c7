"""Pools as they may turn out: drawn from what is known of them, up and down for one simulated run.

A pool takes its machines, and comes back, by the usual hazards (`hazard_by_age`) times two factors
that nobody knows. How likely each pair of factors is follows from how pools differ
(`FACTOR_SPREAD`) and from what was seen of this one; each simulated run draws a pair anew, so that
an estimate is as wide as knowledge is poor. Here: that posterior and the runs of a pool. Not here:
what a job does with them (`job_estimate`).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, product
from typing import Final

from app.domain.availability.hazard_by_age import (
    AGE_EDGES_SECONDS,
    BACK_PER_HOUR,
    TAKEN_PER_HOUR,
    Experience,
    cumulated_hazard,
    expected_interruptions,
    mean_seconds,
    seconds_until,
)

FACTORS: Final = tuple(2 ** (half / 2) for half in range(-8, 9))
FACTOR_SPREAD: Final = 0.8
"""Standard deviation of a factor's logarithm: among pools, and of one pool over weeks."""

EVIDENCE_SHARE: Final = 0.25
"""Refusals and losses come in bursts, and pools change their ways: how much evidence counts."""

SHARED_LUCK: Final = 0.6
"""How often a pool turns out as good or as bad, for what is known of it, as the others do."""

FORGOTTEN_CYCLES: Final = 20
"""After so many times up and down that nobody looked at, a pool is met as at any time: what it was
before tells nothing, and a run of months would be long in going through all of them."""

_AWAY: Final = {factor: mean_seconds(BACK_PER_HOUR, factor) for factor in FACTORS}
_THERE: Final = {factor: mean_seconds(TAKEN_PER_HOUR, factor) for factor in FACTORS}


def _empty_share(pair: tuple[float, float]) -> float:
    """The share of time that a pair of factors (taken, back) leaves a pool empty."""
    taken, back = pair
    return _AWAY[back] / (_AWAY[back] + _THERE[taken])


_PAIRS: Final = tuple(sorted(product(FACTORS, FACTORS), key=_empty_share))
"""From the most plentiful pool to the emptiest."""

_EMPTY: Final = tuple(map(_empty_share, _PAIRS))
_PRIOR: Final = tuple(
    -sum(math.log(factor) ** 2 for factor in pair) / (2 * FACTOR_SPREAD**2) for pair in _PAIRS
)
_TINY: Final = 1e-12


@dataclass(frozen=True)
class PoolPosterior:
    """Running sums of the chances of each pair of factors, from the best to the worst; the last
    is 1.
    """

    sums: tuple[float, ...]

    def pair(self, luck: float) -> tuple[float, float]:
        """The pair (taken, back) that `luck`, from 0 for the best to 1, stands for."""
        return _PAIRS[min(bisect_right(self.sums, luck), len(_PAIRS) - 1)]


def posterior(experience: Experience) -> PoolPosterior:
    """What a deployment's experience makes of the prior."""
    taken, expected = sum(experience.taken), expected_interruptions(experience)
    got = max(0, experience.launches - experience.refusals)
    logs = []
    for (factor, _), prior, empty in zip(_PAIRS, _PRIOR, _EMPTY, strict=True):
        seen = taken * math.log(factor) - factor * expected
        seen += experience.refusals * math.log(empty + _TINY) + got * math.log1p(-empty)
        logs.append(prior + EVIDENCE_SHARE * seen)
    most = max(logs)
    sums = list(accumulate(math.exp(log - most) for log in logs))
    return PoolPosterior(tuple(part / sums[-1] for part in sums))


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
        away, there = _AWAY[self.back], _THERE[self.taken]
        self._up_share = there / (away + there)
        self._forgotten_seconds = FORGOTTEN_CYCLES * (away + there)
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
