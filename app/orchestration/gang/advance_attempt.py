"""Move an attempt on as far as its members' facts allow.

Lives here: forming (all registered), meeting (all prepared), ending (all finished, all drained)
and the way into settling. Not here: how facts arrive (`receive_agent_report`, reconciling), or
what an end means (`end_attempt`).
"""

from __future__ import annotations

from datetime import datetime, timedelta

from app.domain.lifecycle.attempt import (
    DRAINED_STATE,
    LIVE_ATTEMPT_STATES,
    AttemptEvent,
    AttemptState,
    DrainCause,
    DrainOrder,
    all_drained,
    drain_ordered,
    merge_drain,
    verdict_event,
)
from app.domain.lifecycle.attempt_verdict import MemberEnd, MemberOutcome, Stall, settle
from app.domain.lifecycle.end_reason import CoolDownScope, EndReason, facts_of
from app.domain.lifecycle.entities import Attempt, AttemptMember, Instance
from app.domain.lifecycle.events import JobEventKind
from app.domain.lifecycle.instance import EndedBy, InstanceState
from app.domain.lifecycle.job import JobEvent, JobState, stop_end_reason
from app.domain.lifecycle.stored_documents import EndDocument, EndErrorDocument
from app.domain.spec.job_spec import JobSpec
from app.domain.wording.attempt_words import program_ended, program_starting, work_finished
from app.domain.wording.checkpoint_words import where_it_starts
from app.domain.wording.machine_words import all_machines_are
from app.domain.wording.stop_words import drained_words
from app.orchestration.frame.aggregate import JobAggregate
from app.orchestration.frame.look_order import order_look
from app.orchestration.frame.runtime import Limits
from app.orchestration.gang.end_attempt import end_attempt
from app.orchestration.gang.known_lineage import has_final_checkpoint
from app.orchestration.placement.refresh_hazards import HAZARD_CONTROLLER

_LEFT = (MemberOutcome.FINISHED, MemberOutcome.DRAINED, MemberOutcome.STOPPED)


def advance_attempt(aggregate: JobAggregate, limits: Limits) -> None:
    """Apply every move that the rows now allow; bounded by the number of attempt states."""
    for _ in LIVE_ATTEMPT_STATES:
        attempt = aggregate.attempt
        if attempt is None:
            return
        before = attempt.state
        _STEPS[before](aggregate, attempt, limits)
        if aggregate.attempt is None or attempt.state is before:
            return


def order_drain(
    aggregate: JobAggregate, cause: DrainCause, until: datetime, message: str, limits: Limits
) -> None:
    """Ask the live attempt to save and leave; the earlier end and the stronger cause hold."""
    attempt = aggregate.attempt
    if attempt is None:
        return
    was_forming = attempt.state is AttemptState.PROVISIONING
    aggregate.move_attempt(attempt, drain_ordered(cause), message, cause=cause.value)
    if was_forming:
        if attempt.state not in LIVE_ATTEMPT_STATES:
            end_attempt(aggregate, _order_reason(aggregate, cause), message, limits)
        return
    known = None
    if attempt.drain_cause is not None and attempt.drain_until_at is not None:
        known = DrainOrder(attempt.drain_cause, attempt.drain_until_at)
    merged = merge_drain(known, DrainOrder(cause, until))
    attempt.drain_cause, attempt.drain_until_at = merged.cause, merged.until_at
    advance_attempt(aggregate, limits)


def enter_settling(
    aggregate: JobAggregate, event: AttemptEvent, message: str, limits: Limits
) -> None:
    """A member's end is not explained by the rest: wait, boundedly, until every end is."""
    attempt = aggregate.attempt
    if attempt is None:
        return
    aggregate.move_attempt(attempt, event, message)
    if attempt.state is AttemptState.SETTLING and attempt.settle_until_at is None:
        attempt.settle_until_at = aggregate.now + timedelta(seconds=limits.settle_seconds)
        # Peers die of a lost machine long before its silence is noticed: ask its cloud at once.
        for member in aggregate.members:
            if member.outcome is None:
                order_look(aggregate, aggregate.instances[member.instance_id])
    advance_attempt(aggregate, limits)


def _provisioning(aggregate: JobAggregate, attempt: Attempt, limits: Limits) -> None:
    states = [aggregate.instances[m.instance_id].state for m in aggregate.members]
    if len(states) == attempt.node_count and all(s is InstanceState.REGISTERED for s in states):
        attempt.preparing_at = aggregate.now
        attempt.form_until_at = aggregate.now + _preparing_time(aggregate.spec, limits)
        aggregate.move_attempt(
            attempt,
            AttemptEvent.MEMBERS_REGISTERED,
            f"{all_machines_are(attempt.node_count)} registered.",
        )
        aggregate.uow.notify_after_commit(HAZARD_CONTROLLER)


def _preparing_time(spec: JobSpec, limits: Limits) -> timedelta:
    """How long machines may get ready: longer where they bring an image or data first."""
    seconds = limits.preparing_seconds
    seconds += limits.image_seconds if spec.image is not None else 0.0
    seconds += limits.inputs_seconds if spec.brought_folders() else 0.0
    return timedelta(seconds=seconds)


def _preparing(aggregate: JobAggregate, attempt: Attempt, limits: Limits) -> None:
    if has_final_checkpoint(aggregate):
        # The last attempt's end was lost on the way; training again would pay for it twice.
        text = "An earlier attempt finished the work: nothing is left to train."
        enter_settling(aggregate, AttemptEvent.MEMBER_ENDED, text, limits)
        return
    members = aggregate.members
    if attempt.master_port is None and all(member.prepared_at for member in members):
        first = members[0]
        attempt.master_addr = aggregate.instances[first.instance_id].private_address
        attempt.master_port = first.master_port
        aggregate.record(
            JobEventKind.MEMBER_PREPARED,
            f"{all_machines_are(len(members))} prepared.",
            about=attempt,
            fence=attempt.fence,
        )
    _end_if_members_ended(aggregate, limits)


def _running(aggregate: JobAggregate, attempt: Attempt, limits: Limits) -> None:
    if not _succeed_if_finished(aggregate, attempt, limits):
        _end_if_members_ended(aggregate, limits)


def _draining(aggregate: JobAggregate, attempt: Attempt, limits: Limits) -> None:
    if _succeed_if_finished(aggregate, attempt, limits):
        return
    outcomes = [member.outcome for member in aggregate.members]
    cause = attempt.drain_cause
    if cause is not None and all(outcome in _LEFT for outcome in outcomes):
        reason = _order_reason(aggregate, cause)
        message = drained_words(outcomes, reason, attempt, aggregate.job.committed_step)
        aggregate.move_attempt(attempt, all_drained(cause), message, cause=cause.value)
        if attempt.state is DRAINED_STATE[cause]:
            end_attempt(aggregate, reason, message, limits)
        return
    if MemberOutcome.FAILED in outcomes:
        _settle_for_ended_member(aggregate, limits)


def _settling(aggregate: JobAggregate, attempt: Attempt, limits: Limits) -> None:
    until = attempt.settle_until_at
    order, timeout = attempt.drain_cause, aggregate.spec.stall_timeout_seconds
    verdict = settle(
        [_member_end(aggregate, member) for member in aggregate.members],
        final_manifest=has_final_checkpoint(aggregate),
        deadline_passed=until is not None and aggregate.now >= until,
        our_order=order,
        order_reason=None if order is None else _order_reason(aggregate, order),
        stall=None if attempt.stalled_at is None else Stall(timeout, attempt.best_step),
    )
    if verdict is None:
        return
    if facts_of(verdict.end_reason).cool_down is CoolDownScope.HOST:
        # A cloud does not let us name a host: not keeping the machine is how we leave it alone.
        for member in aggregate.members:
            if member.node_rank == verdict.node_rank:
                aggregate.instances[member.instance_id].suspect = True
    aggregate.move_attempt(
        attempt,
        verdict_event(verdict.state),
        verdict.message,
        reason=verdict.end_reason.value,
        node_rank=verdict.node_rank,
        exit_code=verdict.exit_code,
    )
    end_attempt(
        aggregate,
        verdict.end_reason,
        verdict.message,
        limits,
        exit_code=verdict.exit_code,
        error=verdict.error,
    )


_STEPS = {
    AttemptState.PROVISIONING: _provisioning,
    AttemptState.PREPARING: _preparing,
    AttemptState.RUNNING: _running,
    AttemptState.DRAINING: _draining,
    AttemptState.SETTLING: _settling,
}


def record_trainer_started(aggregate: JobAggregate) -> None:
    """The first trainer has started: the attempt runs, and the job with it.

    That is before its first step: the others start, and all restore and compile.
    """
    attempt, job, now = aggregate.attempt, aggregate.job, aggregate.now
    if attempt is None or attempt.state is not AttemptState.PREPARING:
        return
    attempt.trained_at = now
    if aggregate.spec.nodes.is_elastic:
        attempt.size_look_at = now
    start = attempt.parent_step
    is_first = start is None and job.started_at is None
    origin = "" if is_first else f", {where_it_starts(start, job.committed_step)}"
    text = program_starting(aggregate.spec.command_kind, attempt.node_count, origin)
    aggregate.move_attempt(attempt, AttemptEvent.TRAINER_STARTED, text)
    if job.state is JobState.STARTING:
        aggregate.move_job(JobEvent.ATTEMPT_STARTED, text, step=start, fence=attempt.fence)
    if job.started_at is None:
        job.started_at = now
        if job.max_duration_seconds is not None:
            job.run_limit_at = now + timedelta(seconds=job.max_duration_seconds)


def _succeed_if_finished(aggregate: JobAggregate, attempt: Attempt, limits: Limits) -> bool:
    finished = all(m.outcome == MemberOutcome.FINISHED for m in aggregate.members)
    if not finished or not has_final_checkpoint(aggregate):
        return False
    message = work_finished(aggregate.spec.command_kind, len(aggregate.members))
    aggregate.move_attempt(attempt, AttemptEvent.ALL_MEMBERS_FINISHED, message)
    end_attempt(aggregate, EndReason.FINISHED, message, limits)
    return True


def _end_if_members_ended(aggregate: JobAggregate, limits: Limits) -> None:
    """Any end other than finishing needs an explanation; finishing waits for the others."""
    outcomes = [member.outcome for member in aggregate.members]
    if all(outcome is None for outcome in outcomes):
        return
    if any(outcome not in (None, MemberOutcome.FINISHED) for outcome in outcomes):
        _settle_for_ended_member(aggregate, limits)
    elif all(outcome is not None for outcome in outcomes):
        # All finished and no final checkpoint known: the verdict says what that means.
        _settle_for_ended_member(aggregate, limits)


def _settle_for_ended_member(aggregate: JobAggregate, limits: Limits) -> None:
    ended = next(m for m in aggregate.members if m.outcome is not None)
    kind, count = aggregate.spec.command_kind, len(aggregate.members)
    text = program_ended(kind, ended.node_rank, count, str(ended.outcome))
    enter_settling(aggregate, AttemptEvent.MEMBER_ENDED, text, limits)


def _order_reason(aggregate: JobAggregate, cause: DrainCause) -> EndReason:
    if cause is DrainCause.INTERRUPTION:
        return EndReason.SPOT_INTERRUPTED
    if cause is DrainCause.YIELD:
        return _yield_reason(aggregate)
    stop_cause = aggregate.job.stop_cause
    return EndReason.USER_CANCELLED if stop_cause is None else stop_end_reason(stop_cause)


def _yield_reason(aggregate: JobAggregate) -> EndReason:
    """What it leaves for: another size in the same market, else other machines."""
    job, attempt = aggregate.job, aggregate.attempt
    resized = attempt is not None and attempt.node_count != job.node_count
    markets = {aggregate.instances[member.instance_id].market for member in aggregate.members}
    return EndReason.RESIZED if resized and markets == {job.market_mode} else EndReason.MIGRATED


def _member_end(aggregate: JobAggregate, member: AttemptMember) -> MemberEnd:
    instance = aggregate.instances[member.instance_id]
    end: EndDocument = member.end or {}
    error: EndErrorDocument = end.get("error") or {}
    failed_at = end.get("failed_at")
    reason = end.get("reason")
    return MemberEnd(
        node_rank=member.node_rank,
        outcome=None if member.outcome is None else MemberOutcome(member.outcome),
        exit_code=member.exit_code,
        error_type=error.get("type"),
        message=error.get("message"),
        reason=None if reason is None else EndReason(reason),
        out_of_memory=bool(error.get("out_of_memory")),
        peer_communication=bool(error.get("peer_communication")),
        failed_at=None if failed_at is None else datetime.fromisoformat(failed_at),
        noticed=instance.noticed_at is not None,
        ended_by=_ended_by(instance.state, instance.ended_by),
        gone_with_two_witnesses=_is_gone(instance) and member.outcome is None,
    )


def _is_gone(instance: Instance) -> bool:
    """Ended, or known to be ending; one we gave back on silence alone still needs a witness."""
    if instance.state is InstanceState.TERMINATING:
        return instance.forced_at is None
    return instance.state is InstanceState.TERMINATED


def _ended_by(state: InstanceState, ended_by: EndedBy | None) -> EndedBy | None:
    ending = (InstanceState.TERMINATING, InstanceState.TERMINATED)
    return ended_by if state in ending else None
