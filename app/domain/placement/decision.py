"""What is decided about a job's machines: values that `apply_decision` turns into rows.

Not here: the methods and their order (`decide`), or what is kept for people (`placement_decision`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from app.domain.deadline.deadline_policy import DeadlineDecision
from app.domain.deadline.live_choice import LiveChoice
from app.domain.market.offer import Market
from app.domain.placement.gang_size import SizeChoice
from app.domain.placement.migration import MoveDecision


class Transition(StrEnum):
    """A change of a gang that trains: the new machines are acquired before old ones are left."""

    MOVE = "move"  # to another pool
    GROW = "grow"  # by more machines
    LEAVE_SPOT = "leave_spot"
    RETURN_TO_SPOT = "return_to_spot"


class AbandonReason(StrEnum):
    """Why the new machines of a transition are given back."""

    ATTEMPT_ENDED = "attempt_ended"
    NOT_STARTED = "not_started"
    TOO_LATE = "too_late"
    UNAFFORDABLE = "unaffordable"


class MarketRule(StrEnum):
    """Why a job's machines come from the market that they come from."""

    FRUITLESS = "spot_is_fruitless"
    ON_DEMAND_COSTS_LESS = "on_demand_costs_less"
    SPOT_COSTS_LESS = "spot_costs_less"
    STAYING = "staying_costs_least"
    UNAFFORDABLE = "on_demand_unaffordable"
    NO_ON_DEMAND = "no_on_demand"


@dataclass(frozen=True, slots=True)
class Complete:
    """An earlier attempt has finished the work."""


@dataclass(frozen=True, slots=True)
class AcquireOnDemand:
    """Request on-demand machines beside those that train, again at every look until they come.

    at_last: the last safe moment has come; before it the job is not stopped for its budget.
    """

    promise: DeadlineDecision
    at_last: bool


@dataclass(frozen=True, slots=True)
class CutOver:
    """The new machines are here: the attempt saves, and the next one forms over them."""

    transition: Transition


@dataclass(frozen=True, slots=True)
class Abandon:
    """The new machines are given back, and the gang goes on as it is."""

    transition: Transition
    why: AbandonReason


@dataclass(frozen=True, slots=True)
class MarketDecision:
    """Where a job's machines come from, now or by STAYING as before.

    choice: what they are chosen by; None where the plain order and the last safe moment decide.
    """

    rule: MarketRule
    market: Market
    choice: LiveChoice | None = None

    @property
    def turns(self) -> bool:
        """Whether the job leaves the market that it is in."""
        return self.rule is not MarketRule.STAYING


Decision = (
    Complete | AcquireOnDemand | CutOver | Abandon | MarketDecision | SizeChoice | MoveDecision
)
