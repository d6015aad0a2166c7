"""What an hour of a pool is worth: its price over the share of it that becomes progress.

Lives here: the price of a useful hour, and what that makes of a job's remaining work. Not here:
lifetimes (`hazard_by_age`), the choice (`placement`), or whole simulated runs (`job_estimate`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from app.domain.availability.hazard_by_age import TAKEN_PER_HOUR, mean_seconds

SHARE_MIN = 0.02
"""A pool whose machines hardly outlive their boot is priced fifty times, not infinitely."""


@dataclass(frozen=True)
class Expectation:
    """What remaining work is expected to take in one pool alone, if it always has machines."""

    microusd: int
    seconds: float
    interruptions_per_hour: float


@lru_cache(maxsize=4_096)
def useful_share(hazard_factor: float, restart_seconds: float) -> float:
    """The expected share of a spot machine's paid time that is work, not boot and restore.

    Of a life with survival S(t) the integral of S is paid for, and that from the restart's end on
    is worked: a renewal-reward argument (Ross, Introduction to Probability Models, section 7.4).
    """
    paid = mean_seconds(TAKEN_PER_HOUR, hazard_factor)
    worked = mean_seconds(TAKEN_PER_HOUR, hazard_factor, restart_seconds)
    return max(SHARE_MIN, worked / paid)


def useful_hour_microusd(
    microusd_per_hour: float, hazard_factor: float, restart_seconds: float
) -> float:
    """What an hour of progress costs in a spot pool. Rises with the price, and with the hazard."""
    return microusd_per_hour / useful_share(hazard_factor, restart_seconds)


def expect(
    microusd_per_hour: float,
    work_seconds: float,
    restart_seconds: float,
    hazard_factor: float | None,
) -> Expectation:
    """Cost and duration of `work_seconds` in one pool; hazard_factor None: on-demand."""
    if hazard_factor is None:
        seconds, rate = work_seconds + restart_seconds, 0.0
    else:
        seconds = restart_seconds + work_seconds / useful_share(hazard_factor, restart_seconds)
        rate = 3_600 / mean_seconds(TAKEN_PER_HOUR, hazard_factor)
    return Expectation(steady_microusd(microusd_per_hour, seconds), seconds, rate)


def steady_microusd(microusd_per_hour: float, seconds: float) -> int:
    """What so long costs at a price that stays."""
    return round(microusd_per_hour * seconds / 3_600)
