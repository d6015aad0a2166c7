"""The words of a placement's choice: the job's terms, one moment of it, the answer, the reasons.

Here: shapes with their units. Not here: how the choice is made (`placement_choice`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum


class RunningOn(IntEnum):
    """What the job runs on."""

    NOTHING = 0
    SPOT = 1
    ON_DEMAND = 2


class PlacementAction(IntEnum):
    """What to do now."""

    WAIT = 0
    SPOT = 1
    ON_DEMAND = 2


@dataclass(frozen=True, slots=True)
class JobTerms:
    """What stays the same for a job's whole life.

    tick_seconds: until the next decision, and the unit that time is granted in. restart_seconds:
    from asking for machines until work goes on. move_seconds, move_usd: more for another pool.
    """

    pools: tuple[str, ...]
    on_demand_price: float
    tick_seconds: float
    restart_seconds: float
    horizon_seconds: float
    move_seconds: float = 0.0
    move_usd: float = 0.0
    checkpoint_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class PolicyState:
    """The job now. seen, prices: per pool; 1 up, 0 down, -1 unknown; $/h.

    at_risk_seconds: work that would be lost with the running machine.
    """

    time_left_seconds: float
    work_left_seconds: float
    running_on: RunningOn
    pool: int
    start_left_seconds: float
    at_risk_seconds: float
    seen: Sequence[int]
    prices: Sequence[float]

    def start_seconds(self, terms: JobTerms, pool: int) -> float:
        """From choosing this pool until work goes on there."""
        if self.running_on is RunningOn.SPOT and pool == self.pool:
            return self.start_left_seconds
        moved = self.pool not in (-1, pool)
        return terms.restart_seconds + (terms.move_seconds if moved else 0.0)


@dataclass(frozen=True, slots=True)
class PoolRow:
    """One pool in an explanation."""

    pool: str
    price: float
    seen: int
    hazard_per_hour: float
    remaining_hours: float
    chosen: bool
    why: str


@dataclass(frozen=True, slots=True)
class ExpectedCosts:
    """Expected $ until the end; inf where the safety net forbids it or there is no capacity."""

    wait: float
    spot: float
    on_demand: float


@dataclass(frozen=True, slots=True)
class PolicyDecision:
    """The verdict; `pool` is meant for SPOT only, -1 otherwise."""

    verdict: PlacementAction
    pool: int
    costs: ExpectedCosts
    worths: tuple[float, ...]
