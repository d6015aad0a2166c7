"""What an attempt's end means: for its job, for its machines, for the next attempt.

Lives here: the consequences of a terminal attempt and of a terminal or paused job. Not here: the
verdict (`settle_attempts`) or ordering a stop (`stop_job`).
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from app.domain.lifecycle.attempt import AttemptState, DrainCause, drain_ordered
from app.domain.lifecycle.end_reason import CoolDownScope, EndClass, EndReason, facts_of
from app.domain.lifecycle.entities import Attempt, Contact, Instance
from app.domain.lifecycle.instance import InstanceState
from app.domain.lifecycle.job import (
    CLAIMABLE_JOB_STATES,
    TERMINAL_JOB_STATES,
    AttemptEnding,
    JobEvent,
    JobState,
    event_when_attempt_ended,
    stop_end_reason,
)
from app.domain.lifecycle.retry_policy import (
    backoff_seconds,
    ending_of,
    may_retry_code,
    pool_cool_down_seconds,
    progress_exhausted,
    retries_exhausted,
)
from app.domain.units.durations import format_duration
from app.domain.wording.retry_words import code_not_retried, retries_used_up, tried_again
from app.domain.wording.stop_words import reason_words
from app.orchestration.estimates.attempt_measures import keep_pace, pace_of, record_start_up
from app.orchestration.estimates.estimate_remaining import record_training
from app.orchestration.frame.aggregate import JobAggregate
from app.orchestration.frame.runtime import Limits
from app.orchestration.frame.silence import proven_alive_at
from app.orchestration.gang.assign_instances import assign
from app.orchestration.gang.data_facts import record_untold_outputs
from app.orchestration.gang.release_order import order_release

CLAIM_CONTROLLER = "claim_jobs"
RECOVERING_LEAD = timedelta(days=1)
PRIORITY_STEP = timedelta(minutes=10)

_WHY_RELEASED: Final = {
    JobState.SUCCEEDED: "the job finished",
    JobState.FAILED: "the job failed",
    JobState.CANCELLED: "the job was cancelled",
    JobState.PAUSED: "the job is paused",
}


def end_attempt(
    aggregate: JobAggregate,
    reason: EndReason,
    message: str,
    limits: Limits,
    *,
    exit_code: int | None = None,
    error: str = "",
) -> None:
    """Carry out the end of the aggregate's attempt, which is in a terminal state already.

    error: what was said of an error of the user's own.
    """
    attempt, job = aggregate.attempt, aggregate.job
    if attempt is None:
        raise ValueError(f"job {job.id} has no attempt to end")
    attempt.end_reason, attempt.end_message = reason, message
    if reason is EndReason.FINISHED:
        record_untold_outputs(aggregate)
    reported: list[Contact] = []
    for member in aggregate.members:
        assign(aggregate, aggregate.instances[member.instance_id], None)
        contact = aggregate.uow.instances.contact(member.instance_id)
        if contact is not None and contact.fence == attempt.fence:
            # Steps trained and lost are rework for the next attempt; only the reports know them.
            attempt.best_step = max(attempt.best_step, contact.step or 0)
            reported.append(contact)
    keep_pace(attempt, [pace_of(contact) for contact in reported])
    record_training(job, aggregate.spec, attempt)
    record_start_up(aggregate, attempt)
    _count(aggregate, attempt, reason)
    ending = ending_of(
        reason,
        retries=aggregate.spec.retries,
        retries_used=job.retries_used,
        exit_code=exit_code,
        retry_on_exit_codes=aggregate.spec.retry_on_exit_codes,
    )
    if facts_of(reason).counts_against_retries:
        message = _use_retry(aggregate, attempt, reason, message, ending, exit_code, error)
    _cool_down(aggregate, reason)
    event = event_when_attempt_ended(
        ending, ever_trained=job.started_at is not None, stop_cause=job.stop_cause
    )
    final_reason = reason
    if job.stop_cause is not None and event not in (
        JobEvent.ATTEMPT_SUCCEEDED,
        JobEvent.ATTEMPT_ENDED_FATAL,
    ):
        final_reason = stop_end_reason(job.stop_cause)
    aggregate.attempt, aggregate.members = None, []
    aggregate.uow.flush()
    aggregate.move_job(event, message, reason=final_reason.value, fence=attempt.fence)
    if job.state in CLAIMABLE_JOB_STATES and progress_exhausted(job.attempts_without_progress):
        final_reason = EndReason.NO_PROGRESS
        message = (
            f"{job.attempts_without_progress} attempts in a row cost money without saving a newer "
            "checkpoint: the job has failed."
        )
        aggregate.move_job(JobEvent.GIVEN_UP, message, reason=final_reason.value)
    if attempt.preparing_at is not None or job.hold_until_at is None:
        # Only an attempt that had its gang gives its machines new time to wait for another.
        job.hold_until_at = aggregate.now + timedelta(seconds=limits.survivor_hold_seconds)
    after_attempt(aggregate, final_reason, message, limits)


def drop_forming(aggregate: JobAggregate, reason: EndReason, message: str) -> None:
    """End an attempt that has no gang as yet and is needed no more; the job is the caller's."""
    attempt = aggregate.attempt
    if attempt is None:
        return
    aggregate.move_attempt(attempt, drain_ordered(DrainCause.STOP), message)
    attempt.end_reason, attempt.end_message = reason, message
    for member in aggregate.members:
        assign(aggregate, aggregate.instances[member.instance_id], None)
    aggregate.attempt, aggregate.members = None, []
    aggregate.uow.flush()


def after_attempt(aggregate: JobAggregate, reason: EndReason, message: str, limits: Limits) -> None:
    """Put the job where its new state says: back in the queue, at rest, or at its end."""
    job = aggregate.job
    if job.state in CLAIMABLE_JOB_STATES:
        _queue_again(aggregate, reason, message, limits)
    elif job.state in TERMINAL_JOB_STATES or job.state is JobState.PAUSED:
        wind_down(aggregate, reason, message)


def wind_down(aggregate: JobAggregate, reason: EndReason, message: str) -> None:
    """The job has ended or is paused: nothing stays rented, nothing stays asked for."""
    job = aggregate.job
    job.end_reason, job.end_message = reason, message
    job.claimable_at = job.wait_reason = job.hold_until_at = None
    job.moving_launch_id = job.moving_until_at = job.move_look_at = None
    if job.state is not JobState.PAUSED or reason is not EndReason.BUDGET_EXHAUSTED:
        job.paused_by_budget = None
    if job.state is JobState.PAUSED:
        job.stop_cause = job.stop_ordered_at = None
        job.paused_at = aggregate.now
    order_release(aggregate, aggregate.living(), _WHY_RELEASED.get(job.state, "the job ended"))


def _count(aggregate: JobAggregate, attempt: Attempt, reason: EndReason) -> None:
    """Progress and failures in a row, which bound what can be spent for nothing."""
    job = aggregate.job
    billed = attempt.state is not AttemptState.SUCCEEDED and any(
        instance.launched_at is not None for instance in aggregate.instances.values()
    )
    # A gap of ours ends what was forming; its machines are kept.
    ours = reason is EndReason.FENCED_OFF and attempt.preparing_at is None
    if attempt.committed_step > (attempt.parent_step or 0):
        job.attempts_without_progress = 0
    elif billed and not ours:
        job.attempts_without_progress += 1
    waits = facts_of(reason).end_class is EndClass.RETRY_AFTER_BACKOFF
    job.consecutive_failures = job.consecutive_failures + 1 if waits else 0


def _use_retry(
    aggregate: JobAggregate,
    attempt: Attempt,
    reason: EndReason,
    message: str,
    ending: AttemptEnding,
    exit_code: int | None,
    error: str,
) -> str:
    """Count a failure that is the job's own; what people read of it."""
    job, retries = aggregate.job, aggregate.spec.retries
    if ending is not AttemptEnding.RETRYABLE:
        used_up = retries_exhausted(reason, retries=retries, retries_used=job.retries_used)
        if not may_retry_code(reason, exit_code, aggregate.spec.retry_on_exit_codes):
            return f"{message} {code_not_retried(aggregate.spec.retry_on_exit_codes)}"
        return f"{message} {retries_used_up(retries)}" if used_up else message
    job.retries_used += 1
    if job.stop_cause is not None or progress_exhausted(job.attempts_without_progress):
        return message  # no other attempt follows
    ordinal = aggregate.ordinals()[attempt.fence]
    attempt.end_message = tried_again(ordinal, message, exit_code, error, job.retries_used, retries)
    return attempt.end_message


def _cool_down(aggregate: JobAggregate, reason: EndReason) -> None:
    """Let the pools rest whose machines failed, and none of those that did their part.

    A launch that was refused has let its own pools rest already (`settle_launch`).
    """
    seconds = pool_cool_down_seconds(reason)
    if facts_of(reason).cool_down is not CoolDownScope.POOL or not seconds:
        return
    until = aggregate.now + timedelta(seconds=seconds)
    members = [aggregate.instances[member.instance_id] for member in aggregate.members]
    pools = {one.pool for one in members if one.pool is not None and _failed(one, reason)}
    if reason in (EndReason.CONTACT_LOST, EndReason.GPU_FAULT):
        # Where others of the gang are heard, it was the one machine and not the place; shutting
        # the pool would part the survivors from their replacement.
        pools -= {i.pool for i in aggregate.usable() if i.registered_at and not _unreliable(i)}
    for pool in sorted(pools):
        aggregate.uow.offers.cool_down(pool, until, reason.value)


def _failed(instance: Instance, reason: EndReason) -> bool:
    """Whether this machine is why the attempt ended so."""
    if reason is EndReason.REGISTRATION_TIMEOUT:
        return instance.registered_at is None
    if reason is EndReason.CONTACT_LOST:
        gone = instance.state in (InstanceState.TERMINATING, InstanceState.TERMINATED)
        return gone or instance.unreachable_at is not None or instance.forced_at is not None
    return reason is EndReason.GPU_FAULT and instance.suspect


def _queue_again(aggregate: JobAggregate, reason: EndReason, message: str, limits: Limits) -> None:
    """Rank the job, keep its healthy machines, and set its next look."""
    job = aggregate.job
    job.queue_rank_at = job.submitted_at - job.priority * PRIORITY_STEP
    if job.state is JobState.RECOVERING:
        job.queue_rank_at -= RECOVERING_LEAD
    wait = 0.0
    if facts_of(reason).retryable:
        failures = max(1, job.consecutive_failures)
        wait = backoff_seconds(reason, failures, aggregate.entropy.uniform())
    job.claimable_at = aggregate.look_in(wait) if wait else None
    ended = f"The last attempt ended: {reason_words(reason)}."
    if facts_of(reason).counts_against_retries:
        ended = message
    job.wait_reason = f"{ended} Next try in {format_duration(wait)}." if wait else None
    unhealthy = [instance for instance in aggregate.living() if _unreliable(instance)]
    spared = [instance for instance in unhealthy if _may_be_saving(aggregate, instance, limits)]
    for instance in spared:
        instance.suspect = True  # no later attempt counts on it
    order_release(aggregate, [one for one in unhealthy if one not in spared], "it is unreliable")
    if aggregate.spec.nodes.is_elastic and job.moving_launch_id is None:
        usable = [one for one in aggregate.usable() if one not in spared]
        ours = [one for one in usable if one.market is job.market_mode]
        order_release(aggregate, ours[job.node_count :], "the job continues without it")
    aggregate.uow.notify_after_commit(CLAIM_CONTROLLER)


def _unreliable(instance: Instance) -> bool:
    return instance.suspect or instance.unreachable_at is not None


def _may_be_saving(aggregate: JobAggregate, instance: Instance, limits: Limits) -> bool:
    """Whether it is only out of sight: it worked on after its last answer, so it drains by itself
    before its lease ends. Its lease, or long silence, says when it is released.
    """
    if instance.suspect or instance.state is not InstanceState.REGISTERED:
        return False
    contact = aggregate.uow.instances.contact(instance.id)
    if contact is None:
        return False
    return proven_alive_at(aggregate.uow, instance.id, contact.answered_at, limits) is not None
