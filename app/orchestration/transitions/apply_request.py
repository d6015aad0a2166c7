"""Machines that were decided on for a gang's places become a launch, in the same transaction.

Lives here: replacements, the places of a forming gang, growth, and the end of a gang that cannot
form. Not here: the decision (`placement.methods`), the launch's rows (`order_instances`), or a
claim (`apply_claim`).
"""

from __future__ import annotations

from typing import Final

from app.domain.lifecycle.attempt import AttemptEvent
from app.domain.lifecycle.end_reason import EndReason
from app.domain.lifecycle.entities import Attempt
from app.domain.lifecycle.events import JobEventKind
from app.domain.placement.decision import CutOver, Fill, MachineRequest, Replace, Shortage
from app.domain.placement.gang_need import GangNeed
from app.domain.placement.placement_decision import DecisionVerdict
from app.domain.wording.market_words import abandon_words
from app.orchestration.estimates.work_by_gpu import speeds_of
from app.orchestration.frame.aggregate import JobAggregate
from app.orchestration.frame.runtime import Limits
from app.orchestration.gang.advance_attempt import advance_attempt
from app.orchestration.gang.assign_instances import place_members
from app.orchestration.gang.end_attempt import end_attempt
from app.orchestration.gang.move_gang import forget_move, turn_to_new_machines
from app.orchestration.gang.order_instances import LaunchPurpose, order_instances
from app.orchestration.gang.shrink_gang import reserve_places, shrink_to_members
from app.orchestration.gang.stop_job import stop_for_budget
from app.orchestration.placement.decision_log import Reason, Reasons, pool_words, record_decision
from app.orchestration.placement.read_offers import why_none

_WHY_SHORT: Final = {
    Shortage.FENCED_OFF: (
        "agents were not heard for a while, and its number may be known to other machines"
    ),
    Shortage.TOO_MANY_LAUNCHES: "too many launches failed",
    Shortage.UNAFFORDABLE: "the budget allows no other machine",
}


def apply_replace(aggregate: JobAggregate, decision: Replace, limits: Limits) -> None:
    """Request what the next attempt will lack; a move that is under way ends as was decided."""
    if isinstance(decision.move, CutOver):
        turn_to_new_machines(aggregate)
    elif decision.move is not None:
        forget_move(aggregate, abandon_words(decision.move), limits)
    if decision.over_budget is not None:
        stop_for_budget(aggregate, decision.over_budget, limits)
    request = decision.request
    if request is not None:
        beside = ", in addition to the machines that stay" if decision.some_stay else ""
        text = f"{request.count} replacement requested in {request.bids[0].pool.zone}{beside}."
        request_beside(
            aggregate, decision.gang, request, "replacement", text, limits,
            purpose=LaunchPurpose.REPLACEMENT,
        )  # fmt: skip


def request_beside(
    aggregate: JobAggregate,
    gang: GangNeed,
    request: MachineRequest,
    word: str,
    text: str,
    limits: Limits,
    *,
    purpose: LaunchPurpose,
) -> None:
    """Write the launch of machines beside a gang, and why they are requested."""
    launch, _ = order_instances(
        aggregate, request, market=gang.market, purpose=purpose, limits=limits
    )
    grows = purpose is LaunchPurpose.GROWTH
    aggregate.record(
        JobEventKind.GROWTH_REQUESTED if grows else JobEventKind.REPLACEMENT_REQUESTED,
        text,
        about=launch,
        count=request.count,
        zone=request.bids[0].pool.zone,
    )
    _record(aggregate, gang, request, Reason(DecisionVerdict(gang.market), word, text), limits)


def apply_fill(aggregate: JobAggregate, decision: Fill, limits: Limits) -> None:
    """Give the places of the forming gang away, and request machines for the others."""
    attempt = aggregate.attempt
    if attempt is None:
        return
    place_members(aggregate, [aggregate.instances[one] for one in decision.placed])
    missing = attempt.node_count - len(aggregate.members)
    if decision.node_count < attempt.node_count:
        more = decision.node_count - len(aggregate.members)
        why = f"only {more} of the {missing} missing machines are available"
        reserve_places(aggregate, decision.node_count, why)
    if decision.over_budget is not None:
        stop_for_budget(aggregate, decision.over_budget, limits)
    elif decision.shortage is not None:
        _go_short(aggregate, attempt, decision, decision.shortage, missing, limits)
    elif decision.request is None:
        advance_attempt(aggregate, limits)
    else:
        gang, where = aggregate.gang_need, pool_words([one.pool for one in decision.request.bids])
        told = f"Not all requested machines started; now {where}."
        reason = Reason(DecisionVerdict(gang.market), "next_offer", told)
        _record(aggregate, gang, decision.request, reason, limits)
        order_places(aggregate, attempt, decision.request, limits)


def order_places(
    aggregate: JobAggregate, attempt: Attempt, request: MachineRequest, limits: Limits
) -> None:
    """Request machines for open places, and give them these places at once."""
    _, instances = order_instances(
        aggregate,
        request,
        market=aggregate.job.market_mode,
        purpose=LaunchPurpose.GANG,
        limits=limits,
    )
    attempt.launches_made += 1
    place_members(aggregate, instances)


def _record(
    aggregate: JobAggregate, gang: GangNeed, request: MachineRequest, reason: Reason, limits: Limits
) -> None:
    """Keep why machines are requested between two claims, with the pools that were considered."""
    reasons = Reasons(request.considered, request.count, speeds=speeds_of(aggregate))
    record_decision(aggregate, reason, limits, reasons, chosen=request.bids, gang=gang)


def _go_short(
    aggregate: JobAggregate,
    attempt: Attempt,
    decision: Fill,
    shortage: Shortage,
    missing: int,
    limits: Limits,
) -> None:
    """An elastic gang begins with the machines it has, if they are enough; any other gives up."""
    why = _WHY_SHORT.get(shortage)
    if why is None:
        why = why_none(aggregate, aggregate.gang_need, missing, limits)
    if decision.goes_on and shrink_to_members(aggregate, why):
        advance_attempt(aggregate, limits)
        return
    fenced_off = shortage is Shortage.FENCED_OFF
    text = f"The job could not start: {why}."
    aggregate.move_attempt(attempt, AttemptEvent.OFFERS_EXHAUSTED, text)
    reason = EndReason.FENCED_OFF if fenced_off else EndReason.NO_CAPACITY
    end_attempt(aggregate, reason, text, limits)
