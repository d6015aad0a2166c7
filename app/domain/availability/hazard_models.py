"""The hazard models of pools: how common each is, and which of them a pool's experience speaks for.

A pool takes its machines, and gets new ones, by the usual hazards (`hazard_by_age`) times two
factors. PAIRS are the pairs of factors that are told apart. Estimates, offers and the trainer's
checkpoint interval take a pool's pairs from here; the probabilities behind the choices of jobs with
a deadline (`hazard_belief`) are over the same pairs with the same weights. Importing this module
does not load numpy.

The weights were fitted by expectation maximisation to recorded pools, with a floor, so that no
model is ever ruled out. `app.backtest.fit_priors` fits such weights again.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate, product
from typing import Final

from app.domain.availability.hazard_by_age import (
    BACK_PER_HOUR,
    NO_EXPERIENCE,
    TAKEN_PER_HOUR,
    Experience,
    expected_interruptions,
    mean_seconds,
)

FACTORS: Final = (0.2, 0.45, 1.0, 2.2, 5.0)
PAIRS: Final = tuple(product(FACTORS, FACTORS))
"""(taken, back): the rows and columns of the weights below."""

POOL_WEIGHTS: Final = (
    (0.002, 0.002, 0.002, 0.002, 0.002),
    (0.002, 0.002, 0.005, 0.004, 0.002),
    (0.003, 0.008, 0.539, 0.170, 0.004),
    (0.005, 0.033, 0.142, 0.062, 0.002),
    (0.002, 0.002, 0.002, 0.002, 0.002),
)
"""How common each model is among pools. Rows: factors of being taken; columns: of coming back."""

SEVERAL_POOLS_WEIGHTS: Final = (
    (0.001, 0.001, 0.003, 0.042, 0.005),
    (0.001, 0.001, 0.486, 0.002, 0.001),
    (0.001, 0.001, 0.120, 0.330, 0.001),
    (0.001, 0.001, 0.001, 0.001, 0.001),
    (0.001, 0.001, 0.001, 0.001, 0.001),
)
"""The same among sets of two or more pools, which are up while any of them is."""

LAUNCH_SHARE: Final = 0.5
"""Refusals come in bursts, and machines are launched together: how much launches count."""

_AWAY: Final = {factor: mean_seconds(BACK_PER_HOUR, factor) for factor in FACTORS}
_THERE: Final = {factor: mean_seconds(TAKEN_PER_HOUR, factor) for factor in FACTORS}
_POSTERIORS_KEPT = 4_096


def log_weights(weights: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """Logarithms in the order of PAIRS, of weights that sum to 1."""
    flat = [weight for row in weights for weight in row]
    return tuple(math.log(weight / sum(flat)) for weight in flat)


def up_share(pair: tuple[float, float]) -> float:
    """The share of time that a pool with these factors (taken, back) has machines, in (0, 1)."""
    taken, back = pair
    return _THERE[taken] / (_AWAY[back] + _THERE[taken])


def cycle_seconds(pair: tuple[float, float]) -> float:
    """Mean time from one loss of a pool with these factors to the next one."""
    taken, back = pair
    return _AWAY[back] + _THERE[taken]


_LOG_WEIGHTS: Final = dict(zip(PAIRS, log_weights(POOL_WEIGHTS), strict=True))
_BEST_FIRST: Final = tuple(sorted(PAIRS, key=up_share, reverse=True))


@dataclass(frozen=True)
class PoolPosterior:
    """The chance of each pair of factors, summing to 1: the most plentiful pool first."""

    chances: tuple[float, ...]

    @cached_property
    def hazard_factor(self) -> float:
        """By how much more often than usual a machine that the pool has is taken there.

        Pools that are seldom empty count for more, as a machine is more often had there.
        """
        had = [
            chance * up_share(pair) for chance, pair in zip(self.chances, _BEST_FIRST, strict=True)
        ]
        return sum(
            weight * taken for weight, (taken, _) in zip(had, _BEST_FIRST, strict=True)
        ) / sum(had)

    @cached_property
    def empty_chance(self) -> float:
        """The chance that a launch finds the pool empty."""
        return sum(
            chance * (1 - up_share(pair))
            for chance, pair in zip(self.chances, _BEST_FIRST, strict=True)
        )

    @cached_property
    def _sums(self) -> tuple[float, ...]:
        return tuple(accumulate(self.chances))

    def pair(self, luck: float) -> tuple[float, float]:
        """The pair (taken, back) that `luck`, from 0 for the best to 1, stands for."""
        return _BEST_FIRST[min(bisect_right(self._sums, luck), len(_BEST_FIRST) - 1)]


@lru_cache(maxsize=_POSTERIORS_KEPT)
def posterior(experience: Experience) -> PoolPosterior:
    """What a deployment's own machines and launches make of the weights.

    Bayes' rule: interruptions are a Poisson count at the model's hazard, and each launch finds the
    pool empty with the model's share of time (Gelman et al., Bayesian Data Analysis, chapter 2).
    """
    taken, expected = sum(experience.taken), expected_interruptions(experience)
    got = max(0, experience.launches - experience.refusals)
    logs = []
    for pair in _BEST_FIRST:
        lives = taken * math.log(pair[0]) - pair[0] * expected
        up = up_share(pair)
        calls = experience.refusals * math.log1p(-up) + got * math.log(up)
        logs.append(_LOG_WEIGHTS[pair] + lives + LAUNCH_SHARE * calls)
    most = max(logs)
    likely = [math.exp(log - most) for log in logs]
    return PoolPosterior(tuple(part / sum(likely) for part in likely))


USUAL_FACTOR: Final = posterior(NO_EXPERIENCE).hazard_factor
"""The factor of a pool of which nothing is known."""
