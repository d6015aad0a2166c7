"""What was decided about a job's machines becomes rows, in the transaction of whoever asked.

Not here: the decision (`app.domain.placement.decide`), or the rows of a request (`apply_request`)
and of a claim (`apply_claim`).
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final, assert_never

from app.domain.lifecycle.attempt import AttemptState, DrainCause
from app.domain.lifecycle.end_reason import EndReason
from app.domain.lifecycle.job import CLAIMABLE_JOB_STATES, JobEvent
from app.domain.market.offer import Market
from app.domain.placement.decision import (
    Abandon,
    AbandonReason,
    AcquireOnDemand,
    ClaimDecision,
    Complete,
    CutOver,
    Decision,
    Fill,
    MarketDecision,
    MoveDecision,
    Replace,
    Resize,
    Transition,
)
from app.domain.placement.placement_decision import DecisionVerdict
from app.domain.wording.market_words import abandon_words, market_sentence
from app.orchestration.frame.aggregate import JobAggregate
from app.orchestration.frame.runtime import Limits
from app.orchestration.gang.advance_attempt import order_drain
from app.orchestration.gang.end_attempt import CLAIM_CONTROLLER, wind_down
from app.orchestration.gang.move_gang import begin_move, forget_move, turn_to_new_machines
from app.orchestration.gang.order_instances import LaunchPurpose
from app.orchestration.gang.release_order import order_release
from app.orchestration.placement.decision_log import (
    NO_REASONS,
    Reason,
    Reasons,
    record_decision,
)
from app.orchestration.placement.market_and_size import set_size, turn_market
from app.orchestration.placement.read_offers import candidates
from app.orchestration.transitions.apply_claim import apply_claim
from app.orchestration.transitions.apply_request import apply_fill, apply_replace, request_beside

_YIELDS: Final = {
    Transition.MOVE: "The machines to move to are registered: the attempt saves and stops.",
    Transition.LEAVE_SPOT: ("On-demand machines are registered: the spot attempt saves and stops."),
    Transition.RETURN_TO_SPOT: (
        "Spot machines are registered: the on-demand attempt saves and stops."
    ),
}
_RELEASED: Final = {
    Market.SPOT: "the job stays on-demand",
    Market.ON_DEMAND: "the job stays on spot",
}


def apply_decision(
    aggregate: JobAggregate,
    decision: Decision | None,
    limits: Limits,
    reasons: Reasons = NO_REASONS,
) -> None:
    """Write what was decided; reasons: the offers that it was decided by."""
    match decision:
        case None:
            return
        case Complete():
            message = "An earlier attempt finished the work."
            aggregate.move_job(JobEvent.COMPLETION_FOUND, message)
            wind_down(aggregate, EndReason.FINISHED, message)
        case AcquireOnDemand():
            _acquire(aggregate, decision, limits)
        case CutOver():
            _cut_over(aggregate, decision.transition, limits)
        case Abandon():
            _abandon(aggregate, decision, limits)
        case Replace():
            apply_replace(aggregate, decision, limits)
        case Fill():
            apply_fill(aggregate, decision, limits)
        case MarketDecision():
            _market(aggregate, decision, limits, reasons)
        case ClaimDecision():
            apply_claim(aggregate, decision, limits, reasons)
        case Resize():
            _resize(aggregate, decision, limits)
        case MoveDecision():
            _move(aggregate, decision, limits, reasons)
        case _:
            assert_never(decision)


def _acquire(aggregate: JobAggregate, decision: AcquireOnDemand, limits: Limits) -> None:
    """Requested again at every look until they are on their way: a refusal is not the end."""
    sentence = decision.promise.sentence
    if aggregate.job.market_mode is Market.SPOT:
        reason = Reason(DecisionVerdict.ON_DEMAND, "last_safe_moment", sentence)
        record_decision(aggregate, reason, limits)
        _leave_spot(aggregate, sentence, limits)
    if decision.lacking is not None:
        apply_replace(aggregate, decision.lacking, limits)


def _cut_over(aggregate: JobAggregate, transition: Transition, limits: Limits) -> None:
    attempt = aggregate.attempt
    if transition is Transition.MOVE:
        turn_to_new_machines(aggregate)
    if transition is Transition.GROW and attempt is not None:
        more = aggregate.job.node_count - attempt.node_count
        text = f"{more} more machines are ready: the job saves and continues on all of them."
    else:
        text = _YIELDS[transition]
    _yield(aggregate, text, limits)


def _abandon(aggregate: JobAggregate, decision: Abandon, limits: Limits) -> None:
    job, words = aggregate.job, abandon_words(decision)
    if decision.transition is Transition.MOVE:
        forget_move(aggregate, words, limits)
        return
    taken = {member.instance_id for member in aggregate.members}
    if decision.transition is Transition.GROW and aggregate.attempt is not None:
        extra = [one for one in candidates(aggregate, aggregate.gang_need) if one.id not in taken]
        order_release(aggregate, extra, "not all requested machines could be added")
        set_size(aggregate, aggregate.attempt.node_count, words)
        return
    coming = [
        one for one in aggregate.usable() if one.market is job.market_mode and not one.suspect
    ]
    order_release(aggregate, coming, _RELEASED[job.market_mode])
    if decision.transition is Transition.RETURN_TO_SPOT:
        turn_market(aggregate, Market.ON_DEMAND)
        rule, text = "spot_not_had", f"The job stays on-demand: {words}."
    else:
        text = f"The job stays on spot: {words}."
        turn_market(aggregate, Market.SPOT, text)
        unaffordable = decision.why is AbandonReason.UNAFFORDABLE
        rule = "on_demand_not_borne" if unaffordable else "on_demand_not_had"
    record_decision(aggregate, Reason(DecisionVerdict.STAY, rule, text), limits)


def _market(
    aggregate: JobAggregate, decision: MarketDecision, limits: Limits, reasons: Reasons
) -> None:
    """Machines of the other market are requested beside those that train, and then it is turned.

    A job without an attempt turns at once: its claim requests them.
    """
    attempt = aggregate.attempt
    gang = aggregate.job.node_count if attempt is None else attempt.node_count
    sentence = market_sentence(decision, gang, reasons.billing_speed)
    if attempt is None:
        if decision.turns:
            turn_market(aggregate, decision.market, sentence)
        return  # while it stays, its claim says why it waits
    if decision.beside is not None:
        apply_replace(aggregate, decision.beside, limits)
    if decision.turns and decision.market is Market.ON_DEMAND:
        _leave_spot(aggregate, sentence, limits)
    elif decision.turns:
        _turn_gang(aggregate, Market.SPOT, sentence)
    verdict = DecisionVerdict(decision.market) if decision.turns else DecisionVerdict.STAY
    record_decision(aggregate, Reason(verdict, decision.rule.value, sentence), limits, reasons)


def _leave_spot(aggregate: JobAggregate, sentence: str, limits: Limits) -> None:
    """From now on the job's machines are on-demand ones; a forming spot attempt makes way."""
    job, attempt = aggregate.job, aggregate.attempt
    _turn_gang(aggregate, Market.ON_DEMAND, sentence)
    if job.state in CLAIMABLE_JOB_STATES:
        job.wait_reason = None
        claim_now(aggregate)
    elif attempt is not None and attempt.state is AttemptState.PROVISIONING:
        text = "The spot attempt, which is still starting, is replaced by on-demand machines."
        order_drain(aggregate, DrainCause.YIELD, aggregate.now, text, limits)


def claim_now(aggregate: JobAggregate) -> None:
    """The job is claimed without waiting for its next attempt at it."""
    aggregate.job.claimable_at = None
    aggregate.uow.notify_after_commit(CLAIM_CONTROLLER)


def _turn_gang(aggregate: JobAggregate, market: Market, sentence: str) -> None:
    """The next machines are of this market: what a gang was to grow by in the other goes back."""
    job, attempt = aggregate.job, aggregate.attempt
    if attempt is not None:  # else its claim gives back what does not serve
        taken = {member.instance_id for member in aggregate.members}
        spare = [
            one
            for one in aggregate.usable()
            if one.market is not market
            and one.id not in taken
            and (job.moving_launch_id is None or one.launch_id != job.moving_launch_id)
        ]
        order_release(aggregate, spare, "the job switches to another market")
        size = min(job.node_count, attempt.node_count)
        set_size(aggregate, size, "it switches to another market")
    turn_market(aggregate, market, sentence)


def _resize(aggregate: JobAggregate, decision: Resize, limits: Limits) -> None:
    """The machines to grow by are requested beside the gang; it trains on until all are here."""
    request, gang = decision.request, aggregate.gang_need
    if request is None:
        set_size(aggregate, decision.to.count, decision.to.why)
        _yield(aggregate, "The job saves and continues with fewer machines.", limits)
        return
    text = f"{request.count} more requested in {request.bids[0].pool.zone}: {decision.to.why}."
    request_beside(aggregate, gang, request, "growth", text, limits, purpose=LaunchPurpose.GROWTH)
    aggregate.job.node_count += request.count


def _move(
    aggregate: JobAggregate, decision: MoveDecision, limits: Limits, reasons: Reasons
) -> None:
    if decision.to is None:
        reason = Reason(DecisionVerdict.STAY, "no_move_repays", decision.sentence)
        record_decision(aggregate, reason, limits, reasons)
        return
    request = decision.request
    assert request is not None, "it was decided on with the budgets"
    begin_move(aggregate, request, decision.sentence, limits)
    aggregate.job.move_look_at = aggregate.look_in(2 * limits.report_interval_seconds)
    reason = Reason(DecisionVerdict.MOVE, "move_repays", decision.sentence)
    record_decision(aggregate, reason, limits, reasons, request.bids)


def _yield(aggregate: JobAggregate, message: str, limits: Limits) -> None:
    until = aggregate.now + timedelta(seconds=limits.drain_seconds)
    order_drain(aggregate, DrainCause.YIELD, until, message, limits)
