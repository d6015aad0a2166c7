"""Leave spot early, or go back to it, where that is expected to cost a job with a deadline less.

Lives here: what follows from the weighed choice for a job that runs or waits. Machines of the other
market are asked for first, and the attempt yields when they are registered (acquire before
release), whichever way it goes. Not here: the choice (`evaluate_markets`), the last safe moment,
which comes first (`watch_deadlines`), or jobs that are being claimed (`choose_market`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from app.domain.deadline.deadline_policy import DeadlineAction, DeadlineDecision, DeadlineView
from app.domain.deadline.live_choice import LiveChoice
from app.domain.deadline.policy_state import PlacementAction
from app.domain.lifecycle.attempt import TRAINING_ATTEMPT_STATES, AttemptState, DrainCause
from app.domain.lifecycle.entities import Instance
from app.domain.lifecycle.events import JobEventKind
from app.domain.lifecycle.instance import InstanceState
from app.domain.lifecycle.job import CLAIMABLE_JOB_STATES
from app.domain.market.offer import Market, Pool
from app.domain.placement.gang_need import GangNeed
from app.domain.placement.placement_decision import DecisionVerdict
from app.orchestration.estimates.estimate_remaining import WorkLeft
from app.orchestration.frame.aggregate import JobAggregate
from app.orchestration.frame.runtime import Limits
from app.orchestration.gang.advance_attempt import order_drain
from app.orchestration.gang.end_attempt import CLAIM_CONTROLLER
from app.orchestration.gang.fill_gang import request_replacements
from app.orchestration.gang.move_gang import bears_both
from app.orchestration.gang.release_order import order_release
from app.orchestration.placement.choose_gang_size import set_size
from app.orchestration.placement.decision_log import Reason, Reasons, record_decision
from app.orchestration.placement.evaluate_markets import JobProgress, MarketValues
from app.orchestration.placement.spot_safety import (
    OnDemandStay,
    may_return,
    may_still_return,
    return_repays,
    spot_is_fruitless,
    spot_is_safe,
    turn_market,
)
from app.orchestration.transitions.choose_market import (
    FRUITLESS,
    bears,
    leaving_words,
    returning_words,
    staying_words,
)


@dataclass(frozen=True)
class RunningDecision:
    """What a job that runs or waits had better do: turn to the other market, or stay.

    turn_to: None where it stays. reason: of that. stays: why it stays where the other market gives
    no machines; None where nothing is said of it then.
    """

    choice: LiveChoice
    turn_to: Market | None
    reason: Reason
    stays: Reason | None = None


def evaluate_running(
    aggregate: JobAggregate,
    view: DeadlineView,
    decision: DeadlineDecision,
    market_values: MarketValues,
    limits: Limits,
) -> None:
    """Ask what costs least from here on, act on it where it is another market, and keep it."""
    found = decide_running(aggregate, view, decision, market_values, limits)
    if found is None:
        return
    if aggregate.attempt is None:
        if found.turn_to is not None:
            # Its claim asks for them, where the budget bears them.
            aggregate.job.claimable_at = None
            aggregate.uow.notify_after_commit(CLAIM_CONTROLLER)
        return  # while it stays, its claim says why it waits
    gang = aggregate.attempt.node_count
    reason: Reason | None = found.reason
    if found.turn_to is not None and not _ask_in(aggregate, found.turn_to, limits):
        reason = found.stays
    elif found.turn_to is Market.ON_DEMAND:
        leave_spot(aggregate, found.reason.sentence, limits)
    elif found.turn_to is Market.SPOT:
        _turn_to(aggregate, Market.SPOT)
        aggregate.record(JobEventKind.MOVED_TO_SPOT, found.reason.sentence)
    if reason is not None:
        work = market_values.work
        reasons = Reasons(market_values.considered, gang, found.choice, work.speeds, work)
        record_decision(aggregate, reason, limits, reasons)


def decide_running(
    aggregate: JobAggregate,
    view: DeadlineView,
    decision: DeadlineDecision,
    market_values: MarketValues,
    limits: Limits,
) -> RunningDecision | None:
    """What costs least from here on; nothing is changed. None where there is nothing to choose."""
    job, attempt = aggregate.job, aggregate.attempt
    progress = _progress(aggregate, view)
    settled = decision.action in (DeadlineAction.SPOT, DeadlineAction.STAY_ON_DEMAND)
    if progress is None or not settled or decision.unsafe_since_at is not None:
        return None
    choice = market_values.choose(aggregate, progress, limits)
    if choice is None or not choice.rests_on_cost:
        return None
    on_spot = progress.running_on is not Market.ON_DEMAND
    gang = job.node_count if attempt is None else attempt.node_count
    leaves = on_spot and job.market_mode is Market.SPOT
    # A gang that keeps machines at each loss comes to no claim, where this is asked, too.
    fruitless = leaves and spot_is_fruitless(aggregate)
    if leaves and (fruitless or choice.verdict is PlacementAction.ON_DEMAND):
        budgets, _ = aggregate.uow.money.budgets_in_passing(job.project_id, job.budget_id)
        if not bears(budgets, choice.on_demand * gang):
            return None
        text = FRUITLESS if fruitless else leaving_words(choice, gang)
        rule = "spot_is_fruitless" if fruitless else "on_demand_costs_less"
        reason = Reason(DecisionVerdict.ON_DEMAND, rule, text)
        return RunningDecision(choice, Market.ON_DEMAND, reason)
    words = staying_words(choice, gang, Market.SPOT if on_spot else Market.ON_DEMAND)
    stays = Reason(DecisionVerdict.STAY, "staying_costs_least", words)
    may_leave = not on_spot and job.market_mode is Market.ON_DEMAND
    if not may_leave or choice.verdict is not PlacementAction.SPOT:
        return RunningDecision(choice, None, stays)
    stay = OnDemandStay(market_values.on_demand_usd, gang, progress.work_seconds, trains=True)
    returns = may_return(aggregate, limits, progress.work_seconds)
    if not returns or not return_repays(choice, stay, limits):
        return RunningDecision(choice, None, stays)
    reason = Reason(DecisionVerdict.SPOT, "spot_costs_less", returning_words(choice, gang))
    return RunningDecision(choice, Market.SPOT, reason, stays)


def leave_spot(aggregate: JobAggregate, sentence: str, limits: Limits) -> None:
    """From now on the job's machines are on-demand ones; a forming spot attempt makes way."""
    job, attempt = aggregate.job, aggregate.attempt
    _turn_to(aggregate, Market.ON_DEMAND)
    aggregate.record(JobEventKind.MOVED_TO_ON_DEMAND, sentence)
    if job.state in CLAIMABLE_JOB_STATES:
        job.claimable_at = job.wait_reason = None
        aggregate.uow.notify_after_commit(CLAIM_CONTROLLER)
    elif attempt is not None and attempt.state is AttemptState.PROVISIONING:
        text = "The spot attempt, which is still starting, is replaced by on-demand machines."
        order_drain(aggregate, DrainCause.YIELD, aggregate.now, text, limits)


def follow_return(aggregate: JobAggregate, view: DeadlineView, limits: Limits) -> None:
    """A return to spot under way: yield to its machines once registered, or give it up.

    It is given up when spot gave none after all, or when waiting for them has used up the slack, or
    so much of the budget that it would not bear both gangs to the end of the wait.
    """
    job, attempt, seconds = aggregate.job, aggregate.attempt, view.remaining_seconds
    returning = view.running_on is Market.ON_DEMAND and job.market_mode is Market.SPOT
    if not returning or attempt is None or attempt.state not in TRAINING_ATTEMPT_STATES:
        return
    coming = _coming(aggregate, Market.SPOT)
    why = None
    if not coming:
        why = "spot had no machines"
    elif seconds is None or not may_still_return(aggregate, limits, seconds):
        why = "spot machines took too long to start"
    elif not bears_both(aggregate, limits):
        why = "the budget does not cover both sets of machines any longer"
    if why is not None:
        order_release(aggregate, coming, "the job stays on-demand")
        turn_market(aggregate, Market.ON_DEMAND)
        text = f"The job stays on-demand: {why}."
        record_decision(aggregate, Reason(DecisionVerdict.STAY, "spot_not_had", text), limits)
    elif sum(one.state is InstanceState.REGISTERED for one in coming) >= job.node_count:
        until = aggregate.now + timedelta(seconds=limits.drain_seconds)
        text = "Spot machines are registered: the on-demand attempt saves and stops."
        order_drain(aggregate, DrainCause.YIELD, until, text, limits)


def give_up_departure(aggregate: JobAggregate, view: DeadlineView, limits: Limits) -> bool:
    """Before the last safe moment a gang that on-demand did not give whole is not waited for.

    Nor is one beside which the budget would not bear the spot gang until it is here. Returns
    whether the job is on spot again; the choice may ask anew.
    """
    job, attempt, seconds = aggregate.job, aggregate.attempt, view.remaining_seconds
    leaving = view.running_on is Market.SPOT and job.market_mode is Market.ON_DEMAND
    if not leaving or attempt is None or attempt.state not in TRAINING_ATTEMPT_STATES:
        return False
    coming = _coming(aggregate, Market.ON_DEMAND)
    whole = len(coming) >= job.node_count
    if seconds is None or (whole and bears_both(aggregate, limits)):
        return False
    if not spot_is_safe(aggregate, limits, seconds):
        return False
    order_release(aggregate, coming, "the job stays on spot")
    turn_market(aggregate, Market.SPOT)
    word, why = "on_demand_not_had", "on-demand had no machines"
    if whole:
        word, why = (
            "on_demand_not_borne",
            "the budget does not cover both sets of machines any longer",
        )
    text = f"The job stays on spot: {why}."
    aggregate.record(JobEventKind.MOVED_TO_SPOT, text)
    record_decision(aggregate, Reason(DecisionVerdict.STAY, word, text), limits)
    return True


def _ask_in(aggregate: JobAggregate, market: Market, limits: Limits) -> bool:
    """Ask for a gang of the other market beside the one that trains; the job stays as it is.

    False, and nothing is changed, where none fits, no budget bears it, or the gang moves just now.
    """
    job, attempt = aggregate.job, aggregate.attempt
    if attempt is None or job.moving_launch_id is not None:
        return False
    gang = GangNeed(market, min(job.node_count, attempt.node_count))
    return request_replacements(aggregate, gang, limits, can_do_without=True, both_affordable=True)


def _turn_to(aggregate: JobAggregate, market: Market) -> None:
    """The next machines are of this market: what a gang was to grow by in the other goes back."""
    job, attempt = aggregate.job, aggregate.attempt
    turn_market(aggregate, market)
    if attempt is None:
        return  # its claim gives back what does not serve
    taken = {member.instance_id for member in aggregate.members}
    spare = [
        one
        for one in aggregate.usable()
        if one.market is not market
        and one.id not in taken
        and (job.moving_launch_id is None or one.launch_id != job.moving_launch_id)
    ]
    order_release(aggregate, spare, "the job switches to another market")
    set_size(aggregate, min(job.node_count, attempt.node_count), "it switches to another market")


def _coming(aggregate: JobAggregate, market: Market) -> list[Instance]:
    return [one for one in aggregate.usable() if one.market is market and not one.suspect]


def _progress(aggregate: JobAggregate, view: DeadlineView) -> JobProgress | None:
    """None where there is nothing to be said yet: while a gang forms, or the work is not known."""
    attempt = aggregate.attempt
    if view.remaining_seconds is None:
        return None
    if attempt is None:
        return JobProgress(view.remaining_seconds) if not aggregate.usable() else None
    if attempt.state not in TRAINING_ATTEMPT_STATES or view.running_on is None:
        return None
    pool = running_in(aggregate) if view.running_on is Market.SPOT else None
    if view.running_on is Market.SPOT and pool is None:
        return None
    return JobProgress(
        view.remaining_seconds, view.running_on, pool, float(view.start_left_seconds)
    )


def start_left(aggregate: JobAggregate, left: WorkLeft, limits: Limits) -> float:
    """Seconds until the live attempt steps: what is left of its restart, or of its start-up."""
    attempt = aggregate.attempt
    if attempt is None:
        return 0.0
    if attempt.state in (AttemptState.PROVISIONING, AttemptState.PREPARING):
        passed = (aggregate.now - attempt.created_at).total_seconds()
        before = max(0.0, limits.boot_p95_seconds + limits.restore_seconds - passed)
        return before + left.start_seconds
    return left.start_seconds if attempt.state is AttemptState.RUNNING else 0.0


def running_in(aggregate: JobAggregate) -> Pool | None:
    """The spot pool of the live attempt's machines; the first by name of several."""
    machines = [aggregate.instances[member.instance_id] for member in aggregate.members]
    pools = {one.pool for one in machines if one.pool is not None and one.market is Market.SPOT}
    return min(pools, default=None)
