"""The market that a job with a deadline gets its next machines from, where it has none.

Lives here: what follows from the weighed choice for a job in the queue. It leaves spot earlier than
the last safe moment would make it, when waiting for capacity is expected to cost more, and goes
back when spot has machines again; never where the deadline would not be safe. Not here: the choice
(`evaluate_markets`), the last safe moment and running jobs (`watch_deadlines`), or the claim.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.domain.deadline.live_choice import LiveChoice
from app.domain.deadline.policy_state import PlacementAction
from app.domain.lifecycle.entities import Budget
from app.domain.lifecycle.events import JobEventKind
from app.domain.lifecycle.retry_policy import MAX_SPOT_ATTEMPTS_WITHOUT_PROGRESS
from app.domain.market.offer import Market, Offer
from app.domain.placement.gang_need import GangNeed
from app.domain.placement.placement import bids_for_best_region
from app.domain.units.durations import format_duration
from app.domain.units.money import format_usd
from app.orchestration.estimates.work_by_gpu import left_of
from app.orchestration.frame.aggregate import JobAggregate
from app.orchestration.frame.runtime import Limits
from app.orchestration.gang.fill_gang import offers_for
from app.orchestration.gang.reserve_budget import reserve_for_bids
from app.orchestration.placement.decision_log import told_safe_until, work_seconds
from app.orchestration.placement.evaluate_markets import JobProgress, MarketValues
from app.orchestration.placement.price_restores import restore_of
from app.orchestration.placement.shortlist import Shortlist
from app.orchestration.placement.spot_safety import (
    OnDemandStay,
    has_left_spot,
    may_return,
    return_repays,
    spot_is_fruitless,
    spot_is_safe,
    turn_market,
)

_USD = 1_000_000
FRUITLESS = (
    f"Spot interrupted {MAX_SPOT_ATTEMPTS_WITHOUT_PROGRESS} attempts in a row before a newer"
    " checkpoint was saved: the job moves to on-demand machines."
)
UNAFFORDABLE = "The budget does not cover on-demand machines: the job returns to spot."
NO_ON_DEMAND = "No on-demand machines serve the job now: it returns to spot."


@dataclass(frozen=True)
class MarketDecision:
    """The market of a job's next machines, and what they are chosen by.

    choice: None where the plain order and the last safe moment decide. turn_to: another market than
    the job is in, with the reason; None where it stays.
    """

    choice: LiveChoice | None = None
    turn_to: Market | None = None
    why: str = ""


NOTHING_WEIGHED = MarketDecision()


def choose_market(aggregate: JobAggregate, decision: MarketDecision) -> None:
    """From now on the job's machines come from the market that was decided on."""
    if decision.turn_to is None:
        return
    turn_market(aggregate, decision.turn_to)
    leaves = decision.turn_to is Market.ON_DEMAND
    kind = JobEventKind.MOVED_TO_ON_DEMAND if leaves else JobEventKind.MOVED_TO_SPOT
    aggregate.record(kind, decision.why)


def decide_market(
    aggregate: JobAggregate,
    market_values: MarketValues | None,
    by_market: Mapping[Market, Shortlist],
    budgets: Sequence[Budget],
    limits: Limits,
) -> MarketDecision:
    """The decision for a job without machines; nothing is changed.

    market_values: None where there is nothing to weigh, as when no on-demand offer serves the job.
    by_market: the offers of each. Nothing is weighed when the work is not known, the deadline
    leaves no choice, or the budget would not bear on-demand to the end, or not begin it beside what
    is reserved.
    """
    job = aggregate.job
    if market_values is None:
        return _decide_without_values(aggregate, by_market, budgets, limits)
    seconds = market_values.work.on_demand_seconds(aggregate, left_of(aggregate))
    if seconds is None or job.deadline_missed_at is not None:
        return NOTHING_WEIGHED
    choice = market_values.choose(aggregate, JobProgress(seconds), limits)
    if choice is None or not choice.rests_on_cost:
        return NOTHING_WEIGHED

    def can_begin(market: Market) -> bool:
        gang = GangNeed(market, job.node_count)
        return _can_begin(aggregate, gang, by_market[market], budgets, limits)

    # What the choice rests on must be wrong: by it, spot would have come further.
    fruitless = job.market_mode is Market.SPOT and spot_is_fruitless(aggregate)
    left = fruitless or choice.verdict is PlacementAction.ON_DEMAND
    if left and job.market_mode is Market.SPOT:
        to_the_end = choice.on_demand * job.node_count
        if not bears(budgets, to_the_end) or not can_begin(Market.ON_DEMAND):
            return NOTHING_WEIGHED
        if fruitless:
            return MarketDecision(None, Market.ON_DEMAND, FRUITLESS)
        return MarketDecision(choice, Market.ON_DEMAND, leaving_words(choice, job.node_count))
    if job.market_mode is Market.ON_DEMAND and not (left and can_begin(Market.ON_DEMAND)):
        if not _may_go_back(aggregate, choice, market_values, limits, seconds, left):
            return NOTHING_WEIGHED
        if not can_begin(Market.SPOT):
            return NOTHING_WEIGHED
        if left:
            return MarketDecision(None, Market.SPOT, UNAFFORDABLE)
        return MarketDecision(choice, Market.SPOT, returning_words(choice, job.node_count))
    return MarketDecision(choice)


def _may_go_back(
    aggregate: JobAggregate,
    choice: LiveChoice,
    market_values: MarketValues,
    limits: Limits,
    seconds: float,
    unaffordable: bool,
) -> bool:
    """Whether a job without machines may turn from on-demand to spot.

    unaffordable: no budget bears on-demand machines, so that neither rest nor saving matters.
    """
    if unaffordable:
        return spot_is_safe(aggregate, limits, seconds)
    stay = OnDemandStay(
        market_values.on_demand_usd, aggregate.job.node_count, seconds, trains=False
    )
    return may_return(aggregate, limits, seconds) and return_repays(choice, stay, limits)


def _decide_without_values(
    aggregate: JobAggregate,
    by_market: Mapping[Market, Shortlist],
    budgets: Sequence[Budget],
    limits: Limits,
) -> MarketDecision:
    """A job that left spot does not wait for on-demand machines while only spot has any.

    Nothing is weighed without a price of on-demand machines, so no saving is asked for; rest and
    room are, as for every return. At the last safe moment it is to wait for on-demand machines.
    """
    if Market.SPOT not in by_market or not has_left_spot(aggregate, aggregate.gang_need):
        return NOTHING_WEIGHED
    seconds = work_seconds(aggregate)
    if seconds is None or aggregate.job.deadline_missed_at is not None:
        return NOTHING_WEIGHED
    if not may_return(aggregate, limits, seconds):
        return NOTHING_WEIGHED

    def bids(market: Market) -> Sequence[Offer]:
        gang = GangNeed(market, aggregate.job.node_count)
        return _bids(aggregate, gang, by_market[market], limits)

    if bids(Market.ON_DEMAND):
        return NOTHING_WEIGHED
    spot = bids(Market.SPOT)
    if not spot or not _are_affordable(aggregate, spot, budgets, limits):
        return NOTHING_WEIGHED
    return MarketDecision(None, Market.SPOT, NO_ON_DEMAND)


def _can_begin(
    aggregate: JobAggregate,
    gang: GangNeed,
    among: Shortlist,
    budgets: Sequence[Budget],
    limits: Limits,
) -> bool:
    """Whether the budgets bear the smallest gang that its market offers; nothing is reserved yet.

    A market that offers none asks for no money: its machines are waited for.
    """
    bids = _bids(aggregate, gang, among, limits)
    return not bids or _are_affordable(aggregate, bids, budgets, limits)


def _bids(
    aggregate: JobAggregate, gang: GangNeed, among: Shortlist, limits: Limits
) -> Sequence[Offer]:
    """What the smallest gang would be asked for in its market; empty where nothing serves it."""
    count = aggregate.spec.nodes.least
    return bids_for_best_region(
        offers_for(aggregate, gang, count, limits, anywhere=True, among=among)
    )


def _are_affordable(
    aggregate: JobAggregate, bids: Sequence[Offer], budgets: Sequence[Budget], limits: Limits
) -> bool:
    """Whether the budgets bear the smallest gang of them; nothing is reserved yet."""
    verdict, _ = reserve_for_bids(
        aggregate.uow, budgets, aggregate.job.id, bids, aggregate.spec.nodes.least,
        aggregate.living(), limits, aggregate.now,
        writable=(), restore=restore_of(aggregate),
    )  # fmt: skip
    return verdict.yes


def bears(budgets: Sequence[Budget], usd: float) -> bool:
    """Whether what every budget has left would pay for so much."""
    return all(
        budget.cap_microusd is None or budget.cap_microusd - budget.spent_microusd >= usd * _USD
        for budget in budgets
    )


def leaving_words(choice: LiveChoice, gang: int) -> str:
    """Why on-demand machines are asked for before the last safe moment."""
    other, cost = min((choice.wait, choice.spot)), _dollars(choice.on_demand, gang)
    way = "staying on spot" if choice.spot <= choice.wait else "waiting for spot machines"
    return (
        f"On-demand machines are expected to cost {cost} to the end, {way} {_dollars(other, gang)}:"
        " requesting on-demand now."
    )


def returning_words(choice: LiveChoice, gang: int) -> str:
    """Why on-demand machines are left."""
    spot = min(choice.spot, choice.wait)
    return (
        f"Spot is expected to cost {_dollars(spot, gang)} to the end, staying on-demand "
        f"{_dollars(choice.on_demand, gang)}: the job returns to spot."
    )


def staying_words(choice: LiveChoice, gang: int, market: Market) -> str:
    """Why a job stays where it runs, be it that something else than cost keeps it there."""
    on_spot = market is Market.SPOT
    here, other = (choice.spot, choice.on_demand) if on_spot else (choice.on_demand, choice.spot)
    where, there = ("on spot", "on-demand") if on_spot else ("on-demand", "spot")
    if not math.isfinite(other) or not math.isfinite(here):
        return f"The job stays {where}."
    kept = ", which is not safe now" if other < here else ""
    return (
        f"The job stays {where}, expected to cost {_dollars(here, gang)} to the end; "
        f"{there} {_dollars(other, gang)}{kept}."
    )


def waits_for(aggregate: JobAggregate, choice: LiveChoice, limits: Limits) -> str:
    """Why a job waits although a pool fits; without a full stop."""
    gang, seconds = aggregate.job.node_count, work_seconds(aggregate)
    last = told_safe_until(aggregate, limits, seconds)
    slack = ""
    if last is not None and last > aggregate.now:
        slack = (
            "; waiting is safe for another "
            f"{format_duration((last - aggregate.now).total_seconds())}"
        )
    other = min(choice.spot, choice.on_demand)
    if choice.wait >= other:
        # The policy counts a wait for a cheaper pool as dear as what is at hand, not as less.
        return (
            f"cheaper pools are expected back well in time; the pools available now would cost "
            f"{_dollars(other, gang)} to the end{slack}"
        )
    return (
        f"the pools available now would cost {_dollars(other, gang)} to the end, waiting "
        f"{_dollars(choice.wait, gang)}{slack}"
    )


def _dollars(usd: float, gang: int) -> str:
    if not math.isfinite(usd):
        return "more than the deadline allows"
    return format_usd(round(usd * gang * _USD))
