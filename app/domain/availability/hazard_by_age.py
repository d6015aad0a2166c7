"""How long a spot machine of a pool lives, and how long a pool stays empty: hazards by age.

Lives here: the shape that all pools share, lifetimes drawn from it, and the form in which a
deployment's own machines are counted. By which factors a pool departs from the shape is for
`hazard_models`.
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


def expected_interruptions(experience: Experience) -> float:
    """How many the usual hazards would have brought in the time that machines lived."""
    return sum(
        hazard * lived / 3_600
        for hazard, lived in zip(TAKEN_PER_HOUR, experience.lived_seconds, strict=True)
    )


def usual_hazard_per_hour(age_seconds: float) -> float:
    """Interruptions per hour of a machine of this age where the factor is 1."""
    return TAKEN_PER_HOUR[bisect_right(AGE_EDGES_SECONDS, age_seconds)]


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
