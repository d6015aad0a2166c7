"""Why a job's machines come from spot or on-demand, and why a transition ended, for people.

Not here: the rule (`market_choice`), or what is said of a decision later (`decision_words`).
"""

from __future__ import annotations

import math
from typing import Final

from app.domain.deadline.live_choice import LiveChoice
from app.domain.lifecycle.retry_policy import MAX_SPOT_ATTEMPTS_WITHOUT_PROGRESS
from app.domain.market.offer import Market
from app.domain.placement.decision import (
    Abandon,
    AbandonReason,
    MarketDecision,
    MarketRule,
    Transition,
)
from app.domain.units.durations import billed_as, format_duration
from app.domain.units.money import format_usd

_USD: Final = 1_000_000
_WITHOUT_FIGURES: Final = {
    MarketRule.FRUITLESS: (
        f"Spot interrupted {MAX_SPOT_ATTEMPTS_WITHOUT_PROGRESS} attempts in a row before a newer"
        " checkpoint was saved: the job moves to on-demand machines."
    ),
    MarketRule.UNAFFORDABLE: (
        "The budget does not cover on-demand machines: the job returns to spot."
    ),
    MarketRule.NO_ON_DEMAND: "No on-demand machines serve the job now: it returns to spot.",
}

_ABANDONED: Final = {
    (Transition.MOVE, AbandonReason.ATTEMPT_ENDED): "its attempt has ended",
    (Transition.MOVE, AbandonReason.NOT_STARTED): "not all machines there started",
    (Transition.MOVE, AbandonReason.TOO_LATE): "the machines there did not start in time",
    (Transition.MOVE, AbandonReason.LEAVES_SPOT): "the job leaves the spot market",
    (Transition.MOVE, AbandonReason.INCOMPLETE): "not all machines to move to have started",
    (Transition.GROW, AbandonReason.NOT_STARTED): "the additional machines did not start",
    (Transition.LEAVE_SPOT, AbandonReason.NOT_STARTED): "on-demand had no machines",
    (Transition.RETURN_TO_SPOT, AbandonReason.NOT_STARTED): "spot had no machines",
    (Transition.RETURN_TO_SPOT, AbandonReason.TOO_LATE): "spot machines took too long to start",
}


def abandon_words(decision: Abandon) -> str:
    """Why the gang goes on as it is; without a full stop."""
    if decision.why is AbandonReason.UNAFFORDABLE:
        return "the budget does not cover both sets of machines any longer"
    return _ABANDONED[decision.transition, decision.why]


def market_sentence(decision: MarketDecision, gang: int, billing_speed: int = 1) -> str:
    """Why the job turns to another market, or stays.

    gang: machines that costs are told for. billing_speed: seconds that a second is billed as.
    """
    choice, billed = decision.choice, billed_as(billing_speed)
    if choice is None or decision.rule in _WITHOUT_FIGURES:
        return _WITHOUT_FIGURES[decision.rule]
    if decision.rule is MarketRule.ON_DEMAND_COSTS_LESS:
        return _leaving(choice, gang, billed)
    if decision.rule is MarketRule.SPOT_COSTS_LESS:
        spot = min(choice.spot, choice.wait)
        return (
            f"Spot is expected to cost {_dollars(spot, gang)} to the end, staying on-demand "
            f"{_dollars(choice.on_demand, gang)}{billed}: the job returns to spot."
        )
    return staying_words(choice, gang, decision.market, billing_speed)


def staying_words(choice: LiveChoice, gang: int, market: Market, billing_speed: int = 1) -> str:
    """Why a job stays where it runs, be it that something else than cost keeps it there."""
    on_spot = market is Market.SPOT
    here, other = (choice.spot, choice.on_demand) if on_spot else (choice.on_demand, choice.spot)
    where, there = ("on spot", "on-demand") if on_spot else ("on-demand", "spot")
    if not math.isfinite(other) or not math.isfinite(here):
        return f"The job stays {where}."
    kept = ", which is not safe now" if other < here else ""
    return (
        f"The job stays {where}, expected to cost {_dollars(here, gang)} to the end; "
        f"{there} {_dollars(other, gang)}{kept}{billed_as(billing_speed)}."
    )


def waiting_words(
    choice: LiveChoice, gang: int, slack_seconds: float | None, billing_speed: int = 1
) -> str:
    """Why a job waits although a pool fits; without a full stop."""
    more = billed_as(billing_speed)
    if slack_seconds is not None and slack_seconds > 0:
        more += f"; waiting is safe for another {format_duration(slack_seconds)}"
    other = min(choice.spot, choice.on_demand)
    if choice.wait >= other:
        # The policy counts a wait for a cheaper pool as dear as what is at hand, not as less.
        return (
            f"cheaper pools are expected back well in time; the pools available now would cost "
            f"{_dollars(other, gang)} to the end{more}"
        )
    return (
        f"the pools available now would cost {_dollars(other, gang)} to the end, waiting "
        f"{_dollars(choice.wait, gang)}{more}"
    )


def _leaving(choice: LiveChoice, gang: int, billed: str) -> str:
    """Why on-demand machines are requested before the last safe moment."""
    other, cost = min((choice.wait, choice.spot)), _dollars(choice.on_demand, gang)
    way = "staying on spot" if choice.spot <= choice.wait else "waiting for spot machines"
    return (
        f"On-demand machines are expected to cost {cost} to the end, {way} {_dollars(other, gang)}"
        f"{billed}: requesting on-demand now."
    )


def _dollars(usd: float, gang: int) -> str:
    if not math.isfinite(usd):
        return "more than the deadline allows"
    return format_usd(round(usd * gang * _USD))
