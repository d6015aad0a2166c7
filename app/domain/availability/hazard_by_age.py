"""How long a spot machine of a pool lives, and how long a pool stays empty: hazards by age.

Lives here: the shape that all pools share, what a deployment's own machines teach about one, and
lifetimes drawn from both. Not here: what a life is worth (`job_estimate`), or counting the
machines (`app.storage`).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

AGE_EDGES_SECONDS = (600, 1_800, 7_200, 28_800)
"""Ages at which the hazard changes: 10 min, 30 min, 2 h, 8 h."""

TAKEN_PER_HOUR = (2.0, 1.2, 0.55, 0.20, 0.06)
"""Interruptions per hour of a machine of each age.

Source: the availability traces of SkyNomad (Apache-2.0: AWS V100 2022-2023, GCP H100 2025), pooled:
a fresh machine is taken soon or stays long.
"""

BACK_PER_HOUR = (2.4, 1.4, 0.62, 0.25, 0.08)
"""Returns per hour of a pool that has been empty so long. Same source."""

PRIOR_INTERRUPTIONS = 4.0
"""How many interruptions of a pool's own weigh as much as the shape that all pools share."""

LONGEST_SECONDS = 30 * 86_400.0


@dataclass(frozen=True)
class Experience:
    """What a deployment's own machines have been through in one pool, by age of the machine.

    lived_seconds, taken: of each of the five ages; refusals and launches: calls to the cloud.
    """

    lived_seconds: tuple[float, ...] = (0.0,) * 5
    taken: tuple[int, ...] = (0,) * 5
    launches: int = 0
    refusals: int = 0

    @property
    def lived_hours(self) -> float:
        """Machine hours, over all ages."""
        return sum(self.lived_seconds) / 3_600


NO_EXPERIENCE = Experience()
EXPERIENCE_KEPT = timedelta(days=30)
"""Pools change their ways: older machines tell nothing of today."""


def hazard_factor(experience: Experience) -> float:
    """By how much more often than usual the pool takes its machines; 1 with no experience.

    Posterior mean of a Gamma-Poisson model: the usual hazard times an unknown factor, whose prior
    has mean 1 and the weight of `PRIOR_INTERRUPTIONS` (Gelman et al., Bayesian Data Analysis,
    section 2.6).
    """
    expected = expected_interruptions(experience)
    return (PRIOR_INTERRUPTIONS + sum(experience.taken)) / (PRIOR_INTERRUPTIONS + expected)


def expected_interruptions(experience: Experience) -> float:
    """How many the usual hazards would have brought in the time that machines lived."""
    return sum(
        hazard * lived / 3_600
        for hazard, lived in zip(TAKEN_PER_HOUR, experience.lived_seconds, strict=True)
    )


def hazard_per_hour(experience: Experience, age_seconds: float = 0.0) -> float:
    """Expected interruptions per hour of a machine of this age in a pool.

    experience: of `uow.pool_experience.of([pool], since, now)`, NO_EXPERIENCE where that has none;
    it is one query for all pools asked about, to be made before any row is locked. The age is what
    has passed since the machine's launch. For a gang: times its machines, of which each may be
    taken. Young's checkpoint interval takes 1 / this as its mean time between failures.
    """
    return usual_hazard_per_hour(age_seconds) * hazard_factor(experience)


def usual_hazard_per_hour(age_seconds: float) -> float:
    """The same in a pool that is as any other: its factor (`hazard_factor`) is 1."""
    return TAKEN_PER_HOUR[bisect_right(AGE_EDGES_SECONDS, age_seconds)]


def empty_chance(experience: Experience) -> float:
    """The chance that a launch finds the pool empty, in [0, 1].

    Posterior mean of a Beta-Binomial model; without experience the share of time that the usual
    hazards leave a pool empty.
    """
    usual = mean_seconds(BACK_PER_HOUR) / (
        mean_seconds(BACK_PER_HOUR) + mean_seconds(TAKEN_PER_HOUR)
    )
    return (usual * PRIOR_INTERRUPTIONS + experience.refusals) / (
        PRIOR_INTERRUPTIONS + experience.launches
    )


def seconds_until(hazards_per_hour: Sequence[float], factor: float, draw: float) -> float:
    """The duration that `draw` (uniform in [0, 1)) stands for, by inversion; seconds.

    hazards_per_hour: of the ages between AGE_EDGES_SECONDS; factor: multiplies all of them.
    """
    target = -math.log1p(-draw)  # the cumulated hazard of an exponential draw
    begin, cumulated = 0.0, 0.0
    for hazard, end in zip(hazards_per_hour, (*AGE_EDGES_SECONDS, LONGEST_SECONDS), strict=True):
        rate = hazard * factor / 3_600
        if cumulated + rate * (end - begin) >= target:
            return begin + (target - cumulated) / rate
        cumulated += rate * (end - begin)
        begin = end
    return LONGEST_SECONDS


def cumulated_hazard(hazards_per_hour: Sequence[float], factor: float, seconds: float) -> float:
    """The integral of the hazard over a life of so many seconds; exp(-it) live longer."""
    begin, cumulated = 0.0, 0.0
    for hazard, end in zip(hazards_per_hour, (*AGE_EDGES_SECONDS, math.inf), strict=True):
        cumulated += hazard * factor / 3_600 * max(0.0, min(seconds, end) - begin)
        begin = end
    return cumulated


def mean_seconds(
    hazards_per_hour: Sequence[float], factor: float = 1.0, beyond_seconds: float = 0.0
) -> float:
    """Expected duration under hazards by age; seconds.

    beyond_seconds: only what comes after so long is counted, as the work that a machine does once
    it has booted: the integral of the survival function from there on.
    """
    begin, alive, total = 0.0, 1.0, 0.0
    for hazard, end in zip(hazards_per_hour, (*AGE_EDGES_SECONDS, LONGEST_SECONDS), strict=True):
        rate = hazard * factor / 3_600
        survived = math.exp(-rate * (end - begin))
        counted = max(begin, min(end, beyond_seconds))
        total += alive * (math.exp(-rate * (counted - begin)) - survived) / rate
        alive *= survived
        begin = end
    return total
