"""Spot or on-demand for a job with a deadline: whoever waits and whoever trains, by one rule.

The job leaves spot before the last safe moment where that is expected to cost less, and goes back
where that saves enough. Not here: the expected costs (`live_placement`), or the last safe moment.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from app.domain.deadline.live_choice import LiveChoice
from app.domain.deadline.policy_state import PlacementAction
from app.domain.market.offer import Market
from app.domain.placement.decision import MarketDecision, MarketRule
from app.domain.placement.methods.replace_lost import LackingState


class Beginning(Enum):
    """Whether the smallest gang could be requested in a market now."""

    NO_OFFER = 0
    UNAFFORDABLE = 1
    POSSIBLE = 2


@dataclass(frozen=True)
class MarketState:
    """What a job's market is chosen by.

    market: of its next machines. running_on: of those that train. in_queue: it is being claimed
    without machines. choice: expected costs; None where on-demand has no price. fruitless: spot
    interrupted its attempts before they saved anything. spot_is_safe, may_return: whether spot may
    be tried, and by a job that left it; repays: whether the return saves enough.
    covers: whether the budgets cover so many dollars. begins: asked for one market at a time, as
    all offers are judged for it. Neither reads a row. beside: the gang of the other market that
    would be requested beside the one that trains.
    """

    market: Market
    gang: int
    choice: LiveChoice | None
    fruitless: bool
    spot_is_safe: bool
    may_return: bool
    repays: bool
    covers: Callable[[float], bool]
    begins: Callable[[Market], Beginning]
    running_on: Market | None = None
    in_queue: bool = False
    beside: LackingState | None = None


def choose_market(state: MarketState) -> MarketDecision | None:
    """The market of the next machines; None where nothing can be weighed."""
    choice = state.choice
    if choice is None:
        return _without_on_demand(state)
    if not choice.rests_on_cost:
        return None
    leaves = state.market is Market.SPOT and state.running_on is not Market.ON_DEMAND
    # What the choice rests on must be wrong: by it, spot would have come further.
    fruitless = leaves and state.fruitless
    on_demand = fruitless or choice.verdict is PlacementAction.ON_DEMAND
    if leaves and on_demand:
        return _leave(state, choice, fruitless)
    returns = state.market is Market.ON_DEMAND and (
        state.in_queue or state.running_on is Market.ON_DEMAND
    )
    stays = MarketDecision(MarketRule.STAYING, state.running_on or state.market, choice)
    if not returns or (not state.in_queue and choice.verdict is not PlacementAction.SPOT):
        return stays
    if on_demand and state.begins(Market.ON_DEMAND) is not Beginning.UNAFFORDABLE:
        return stays
    # Neither rest nor saving matters where no budget covers on-demand machines.
    allowed = state.spot_is_safe if on_demand else state.may_return and state.repays
    if not allowed or state.begins(Market.SPOT) is Beginning.UNAFFORDABLE:
        return None if state.in_queue else stays
    if on_demand:
        return MarketDecision(MarketRule.UNAFFORDABLE, Market.SPOT)
    return MarketDecision(MarketRule.SPOT_COSTS_LESS, Market.SPOT, choice)


def _leave(state: MarketState, choice: LiveChoice, fruitless: bool) -> MarketDecision | None:
    """To on-demand, if the budgets cover it to the end."""
    if not state.covers(choice.on_demand * state.gang):
        return None
    if state.begins(Market.ON_DEMAND) is Beginning.UNAFFORDABLE:
        return None
    if fruitless:
        known = None if state.in_queue else choice
        return MarketDecision(MarketRule.FRUITLESS, Market.ON_DEMAND, known)
    return MarketDecision(MarketRule.ON_DEMAND_COSTS_LESS, Market.ON_DEMAND, choice)


def _without_on_demand(state: MarketState) -> MarketDecision | None:
    """A job that left spot does not wait for on-demand machines while only spot has any.

    Without a price of on-demand machines no saving is asked for; rest and room are, as for every
    return. At the last safe moment it waits for on-demand machines.
    """
    if state.market is not Market.ON_DEMAND or not state.may_return:
        return None
    if state.begins(Market.ON_DEMAND) is not Beginning.NO_OFFER:
        return None
    if state.begins(Market.SPOT) is not Beginning.POSSIBLE:
        return None
    return MarketDecision(MarketRule.NO_ON_DEMAND, Market.SPOT)
