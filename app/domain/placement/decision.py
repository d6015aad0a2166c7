"""What is decided about a job's machines: values that `apply_decision` turns into rows.

Not here: the methods and their order (`decide`), or what is kept for people (`placement_decision`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from app.domain.billing.budget import BudgetCheck
from app.domain.deadline.deadline_policy import DeadlineDecision
from app.domain.deadline.live_choice import LiveChoice
from app.domain.market.offer import Market, Offer
from app.domain.placement.gang_need import GangNeed
from app.domain.placement.gang_size import SizeChoice
from app.domain.placement.placement import RankedOffer


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
    LEAVES_SPOT = "leaves_spot"
    INCOMPLETE = "incomplete"  # an old machine was lost, and not all new ones are there


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
class CutOver:
    """The new machines are here: the attempt saves, and the next one forms over them."""

    transition: Transition


@dataclass(frozen=True, slots=True)
class Abandon:
    """The new machines are given back, and the gang goes on as it is."""

    transition: Transition
    why: AbandonReason


@dataclass(frozen=True, slots=True)
class MachineRequest:
    """So many machines, at least least of them, from one of bids.

    considered: all offers, judged for so many. reserved_microusd: held for all of the job's
    machines then, with the first 15 minutes of these.
    """

    count: int
    least: int
    bids: tuple[Offer, ...]
    considered: tuple[RankedOffer, ...]
    reserved_microusd: int


@dataclass(frozen=True, slots=True)
class Replace:
    """What the next attempt will lack, before the present one has ended.

    move: what becomes of a move that is under way. request: None where nothing is missing or fits.
    over_budget: of the budget that stops the job, as it cannot go on without them.
    some_stay: whether the gang has machines that the requested ones join.
    """

    gang: GangNeed
    move: CutOver | Abandon | None = None
    request: MachineRequest | None = None
    over_budget: BudgetCheck | None = None
    some_stay: bool = False


class Shortage(StrEnum):
    """Why the open places of a forming gang stay empty."""

    FENCED_OFF = "fenced_off"
    TOO_MANY_LAUNCHES = "too_many_launches"
    NO_OFFER = "no_offer"
    UNAFFORDABLE = "unaffordable"


@dataclass(frozen=True, slots=True)
class Fill:
    """What the open places of a forming gang get.

    placed: machines at hand. node_count: of the gang, smaller where fewer can be had. request:
    machines for the other places. shortage: why those stay empty; then the gang goes on with what
    it has if goes_on, and ends else. over_budget: as of `Replace`.
    """

    placed: tuple[UUID, ...]
    node_count: int
    request: MachineRequest | None = None
    shortage: Shortage | None = None
    goes_on: bool = False
    over_budget: BudgetCheck | None = None


class ClaimRule(StrEnum):
    """What becomes of a job that is claimed."""

    START = "start"
    NO_OFFER = "no_offer"
    WAITING_COSTS_LESS = "waiting_costs_less"
    RETURN_TO_SPOT = "return_to_spot"
    OVER_BUDGET = "over_budget"


@dataclass(frozen=True, slots=True)
class ClaimDecision:
    """Where the gang of a claimed job gets its machines, or why it waits.

    size: that an elastic gang gets by its places; None where it keeps its own. given_up: survivors
    that it leaves then, as it moves as a whole. considered: offers, judged for the missing
    machines. bids: that the budgets cover; none where all machines are at hand. reserved_microusd:
    as of `MachineRequest`. sizes_after: by its deadline and its budget. over_budget: of the budget
    that is short.
    """

    rule: ClaimRule
    size: SizeChoice | None
    given_up: tuple[UUID, ...]
    considered: tuple[RankedOffer, ...]
    missing: int
    bids: tuple[Offer, ...] = ()
    reserved_microusd: int = 0
    sizes_after: tuple[SizeChoice, ...] = ()
    over_budget: BudgetCheck | None = None


@dataclass(frozen=True, slots=True)
class Resize:
    """Another size for a gang that trains. request: the machines that it grows by."""

    to: SizeChoice
    request: MachineRequest | None = None


@dataclass(frozen=True, slots=True)
class MoveDecision:
    """to: the name of the pool to move to, or None. The sentence is for people.

    request: a gang there, beside the one that trains; None while the budgets are not read.
    """

    to: str | None
    sentence: str
    request: MachineRequest | None = None


@dataclass(frozen=True, slots=True)
class AcquireOnDemand:
    """Request on-demand machines beside those that train, again at every look until they come.

    lacking: what they are; None where no attempt trains, whose claim then requests them.
    """

    promise: DeadlineDecision
    lacking: Replace | None = None


@dataclass(frozen=True, slots=True)
class MarketDecision:
    """Where a job's machines come from, now or by STAYING as before.

    choice: what they are chosen by; None where the plain order and the last safe moment decide.
    beside: the gang of the other market that is requested beside the one that trains.
    """

    rule: MarketRule
    market: Market
    choice: LiveChoice | None = None
    beside: Replace | None = None

    @property
    def turns(self) -> bool:
        """Whether the job leaves the market that it is in."""
        return self.rule is not MarketRule.STAYING


Decision = (
    Complete
    | AcquireOnDemand
    | CutOver
    | Abandon
    | Replace
    | Fill
    | MarketDecision
    | ClaimDecision
    | Resize
    | MoveDecision
)
