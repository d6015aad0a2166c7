"""What a live choice is asked with and its answer: a job, its pools, one moment, what costs least.

Lives here: shapes with their units, and how often the choice is looked at. Not here: the choice
(`live_placement`, which loads numpy and is passed to controllers as `MakePlacement`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol

from app.domain.availability.availability_observations import AvailabilityObservations
from app.domain.deadline.policy_state import PlacementAction, PoolRow, RunningOn
from app.domain.market.offer import Pool

PAST: Final = timedelta(hours=48)
"""How far back observations are read: what is older is forgotten by more than half."""

TICK_SECONDS: Final = (60.0, 600.0)
"""The shortest and the longest time between two looks at a job's choice."""

TICKS_OF_A_JOB: Final = 288


def tick_seconds_of(horizon_seconds: float) -> float:
    """How often the choice of a job with so much time is looked at."""
    least, most = TICK_SECONDS
    return min(most, max(least, horizon_seconds / TICKS_OF_A_JOB))


@dataclass(frozen=True)
class LivePool:
    """A pool that could serve: what was seen of it, and whether it has machines now, if known.

    usual_usd: its usual price per hour, as that of `LiveState.prices` is meant.
    """

    pool: Pool
    usual_usd: float
    observations: AvailabilityObservations
    has_room: bool | None


@dataclass(frozen=True)
class LiveTerms:
    """What stays the same for a job: prices in $ per machine and hour of equal work."""

    on_demand_usd: float
    horizon_seconds: float
    restart_seconds: float


@dataclass(frozen=True)
class LiveState:
    """A job now. prices: $ per hour, by pool as in the placement. time_left_seconds: until
    on-demand machines would be too late to have been asked for. running_in: the spot pool that it
    runs in; start_left_seconds: until work goes on there.
    """

    time_left_seconds: float
    work_left_seconds: float
    running_on: RunningOn
    running_in: Pool | None
    start_left_seconds: float
    prices: Sequence[float]


@dataclass(frozen=True)
class LiveChoice:
    """What costs least. wait, spot, on_demand: expected $ until the end for each machine of the
    gang; inf where it is not safe or not to be had. order: pools by what they are worth, best
    first; empty where one alone was at hand.
    """

    verdict: PlacementAction
    pool: Pool | None
    wait: float
    spot: float
    on_demand: float
    order: tuple[Pool, ...]
    rows: tuple[PoolRow, ...]

    @property
    def rests_on_cost(self) -> bool:
        """Whether another way was safe too; else the last safe moment is what speaks."""
        others = {
            PlacementAction.WAIT: self.wait,
            PlacementAction.SPOT: self.spot,
            PlacementAction.ON_DEMAND: self.on_demand,
        }
        return any(math.isfinite(cost) for way, cost in others.items() if way != self.verdict)


class PoolPlacement(Protocol):
    """What is believed of a job's pools at one instant; `live_placement.LivePlacement`."""

    @property
    def pools(self) -> tuple[Pool, ...]:
        """The pools that are believed in."""
        ...

    def at_hand(self) -> PoolPlacement:
        """The same with its value table, for a choice under a lock."""
        ...

    def choose(self, live: LiveState) -> LiveChoice:
        """The choice of least expected cost."""
        ...


MakePlacement = Callable[[LiveTerms, Sequence[LivePool], datetime], PoolPlacement]
"""`live_placement.LivePlacement`, or what imports it at the first call."""
