"""What was decided about a claimed job becomes rows: its attempt and launch, or why it waits.

Not here: the decision (`placement.methods.place_claimed`), or who is claimed when (`claim_jobs`).
"""

from __future__ import annotations

from dataclasses import replace

from app.domain.lifecycle.attempt import AttemptState
from app.domain.lifecycle.end_reason import EndReason
from app.domain.lifecycle.entities import Attempt
from app.domain.lifecycle.events import JobEventKind
from app.domain.lifecycle.instance import InstanceState
from app.domain.lifecycle.job import JobEvent
from app.domain.market.offer import Market
from app.domain.placement.decision import (
    ClaimDecision,
    ClaimRule,
    MachineRequest,
    MarketDecision,
    MarketRule,
)
from app.domain.placement.fit_verdict import Obstacle
from app.domain.placement.launch_room import obstacle_of
from app.domain.placement.methods.gang_machines import is_place_open
from app.domain.placement.placement_decision import DecisionVerdict
from app.domain.placement.placement_reasons import slack_seconds
from app.domain.wording.machine_words import machines_at_hand
from app.domain.wording.market_words import market_sentence, waiting_words
from app.orchestration.estimates.work_by_gpu import left_of, speeds_of
from app.orchestration.frame.aggregate import JobAggregate
from app.orchestration.frame.runtime import Limits
from app.orchestration.gang.advance_attempt import advance_attempt
from app.orchestration.gang.assign_instances import place_members
from app.orchestration.gang.end_attempt import wind_down
from app.orchestration.gang.release_order import order_release
from app.orchestration.gang.reserve_budget import reserve_in_passing
from app.orchestration.gang.shrink_gang import form_until
from app.orchestration.placement.decision_log import (
    Reason,
    Reasons,
    claim_reason,
    record_decision,
    told_safe_until,
)
from app.orchestration.placement.market_and_size import has_left_spot, set_size, turn_market
from app.orchestration.placement.read_offers import candidates, no_offer_reason
from app.orchestration.transitions.apply_request import order_places


def apply_claim(
    aggregate: JobAggregate, decision: ClaimDecision, limits: Limits, reasons: Reasons
) -> None:
    """Give the gang its size and its machines, or write why the job waits.

    reasons: what its deadline makes of the offers, and how its work was counted.
    """
    if decision.size is not None:
        set_size(aggregate, decision.size.count, decision.size.why)
    given_up = [aggregate.instances[one] for one in decision.given_up]
    order_release(aggregate, given_up, "the job moves to another zone")
    for size in decision.sizes_after:
        set_size(aggregate, size.count, size.why)
    known = replace(reasons, considered=decision.considered, count=decision.missing)
    gang, choice = aggregate.gang_need, reasons.choice
    if decision.rule is ClaimRule.START:
        _start_attempt(aggregate, decision, limits, known)
    elif decision.rule is ClaimRule.NO_OFFER:
        why = no_offer_reason(aggregate, gang, known.considered, known.count)
        obstacle = obstacle_of(known.considered)
        word = "no_offer" if obstacle is None else obstacle.verdict.value
        _wait(aggregate, why, word, known, limits)
        if reasons.choice is None:
            _let_others_wait(aggregate, obstacle)
    elif decision.rule is ClaimRule.WAITING_COSTS_LESS and choice is not None:
        last = told_safe_until(aggregate, limits, left_of(aggregate).seconds)
        slack = slack_seconds(last, aggregate.now)
        why = waiting_words(choice, gang.node_count, slack, known.billing_speed)
        _wait(aggregate, why, "waiting_costs_less", known, limits)
    elif decision.rule is ClaimRule.RETURN_TO_SPOT:
        _go_back(aggregate, known, limits)
    elif decision.rule is ClaimRule.OVER_BUDGET and decision.over_budget is not None:
        reason = Reason(DecisionVerdict.WAIT, "budget", decision.over_budget.sentence)
        record_decision(aggregate, reason, limits, known)
        aggregate.job.paused_by_budget = decision.over_budget.short
        aggregate.move_job(JobEvent.STOPPED_FOR_BUDGET, decision.over_budget.sentence)
        wind_down(aggregate, EndReason.BUDGET_EXHAUSTED, decision.over_budget.sentence)


def _go_back(aggregate: JobAggregate, known: Reasons, limits: Limits) -> None:
    """It left spot before it had to, and no budget covers the on-demand machines it lacks."""
    order_release(aggregate, aggregate.usable(), "the job returns to spot")
    unaffordable = MarketDecision(MarketRule.UNAFFORDABLE, Market.SPOT)
    sentence = market_sentence(unaffordable, aggregate.job.node_count)
    turn_market(aggregate, Market.SPOT, sentence)
    reasons = Reasons(known.considered, known.count, speeds=speeds_of(aggregate))
    _wait(aggregate, "looking for spot machines again", "budget", reasons, limits)


def _start_attempt(
    aggregate: JobAggregate, decision: ClaimDecision, limits: Limits, reasons: Reasons
) -> None:
    job, now, bids = aggregate.job, aggregate.now, decision.bids
    at_hand = candidates(aggregate, aggregate.gang_need)
    attempt = Attempt(
        id=aggregate.entropy.new_id(),
        job_id=job.id,
        fence=job.next_fence,
        state=AttemptState.PROVISIONING,
        node_count=job.node_count,
        created_at=now,
        updated_at=now,
        form_until_at=form_until(aggregate, at_hand, limits),
    )
    job.next_fence += 1
    # The first one is most of all: it needs no look at those before it.
    ordinal = 1 if attempt.fence == 1 else len(aggregate.uow.attempts.ordinals(job.id)) + 1
    job.claimable_at = job.wait_reason = None
    taken = at_hand[: attempt.node_count]
    ready = sum(one.state is InstanceState.REGISTERED for one in taken)
    # The pools and their verdicts are in this fence's first decision, of the same instant.
    aggregate.move_job(
        JobEvent.CLAIMED,
        f"Attempt {ordinal}: {machines_at_hand(ready, len(taken) - ready)}.",
        fence=attempt.fence,
        market=job.market_mode,
        at_hand=len(at_hand),
        asked_for=reasons.count if bids else 0,
    )
    aggregate.uow.attempts.add(attempt)
    aggregate.attempt = attempt
    record_decision(
        aggregate, claim_reason(aggregate, bids, reasons.choice), limits, reasons, chosen=bids
    )
    place_members(aggregate, at_hand)
    missing = attempt.node_count - len(aggregate.members)
    if missing == 0 or is_place_open(at_hand):
        reserve_in_passing(aggregate, decision.reserved_microusd)
        advance_attempt(aggregate, limits)
        return
    least = max(1, min(missing, aggregate.spec.nodes.least - len(aggregate.members)))
    held = decision.reserved_microusd
    request = MachineRequest(missing, least, bids, decision.considered, held)
    order_places(aggregate, attempt, request, limits)


def _wait(
    aggregate: JobAggregate, reason: str, word: str, reasons: Reasons, limits: Limits
) -> None:
    job = aggregate.job
    due = aggregate.look_in(limits.next_look_seconds)
    decided = Reason(DecisionVerdict.WAIT, word, f"Waiting: {reason}.")
    first_time = job.wait_reason is None or not _waited_so(aggregate, word)
    record_decision(aggregate, decided, limits, reasons)
    job.claimable_at, job.wait_reason = due, reason
    if first_time:
        aggregate.record(JobEventKind.WAITING, f"Waiting: {reason}.", next_look_at=str(due))


def _let_others_wait(aggregate: JobAggregate, obstacle: Obstacle | None) -> None:
    """Jobs that need the same get the same verdict; those of other projects only where what people
    have set against its machines is set against theirs, too.
    """
    job = aggregate.job
    # What its own deadline or patience makes of an offer is no verdict on others, nor when it
    # may return to spot.
    alone = aggregate.spec.patience_seconds or has_left_spot(aggregate, aggregate.gang_need)
    if alone or aggregate.living() or job.claimable_at is None or job.wait_reason is None:
        return
    everywhere = obstacle is None or obstacle.of_deployment
    project_id = None if everywhere else job.project_id
    aggregate.uow.jobs.wait_together(job, job.claimable_at, job.wait_reason, project_id)


def _waited_so(aggregate: JobAggregate, word: str) -> bool:
    """Whether the newest decision was to wait, for a reason of the same kind."""
    return aggregate.uow.decisions.latest_kind(aggregate.job.id) == (DecisionVerdict.WAIT, word)
