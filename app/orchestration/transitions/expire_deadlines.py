"""Rules of time: what happens to a job when one of its instants has come.

Lives here: one function per instant that `timers` knows. Not here: deadlines that move with
progress (`watch_deadlines`), silence (`watch_contacts`), or money (`enforce_budgets`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from app.domain.lifecycle.attempt import AttemptEvent, AttemptState
from app.domain.lifecycle.attempt_verdict import MemberOutcome
from app.domain.lifecycle.end_reason import EndReason
from app.domain.lifecycle.events import JobEventKind
from app.domain.lifecycle.instance import InstanceState
from app.domain.lifecycle.job import (
    ATTEMPT_JOB_STATES,
    CLAIMABLE_JOB_STATES,
    JobEvent,
    JobState,
    StopCause,
)
from app.orchestration.frame.aggregate import JobAggregate
from app.orchestration.frame.controller_frame import RowController
from app.orchestration.frame.runtime import Limits
from app.orchestration.gang.advance_attempt import advance_attempt, enter_settling
from app.orchestration.gang.end_attempt import end_attempt, wind_down
from app.orchestration.gang.release_order import order_release
from app.orchestration.gang.shrink_gang import shrink_to_registered
from app.orchestration.gang.stop_job import order_stop
from app.orchestration.transitions.lose_instances import record_overdue, record_unregistered
from app.storage.unit_of_work import UnitOfWork

EXPIRE_CONTROLLER = "expire_deadlines"


@dataclass(frozen=True)
class DueJob:
    """A job one of whose instants has come."""

    job_id: UUID


class ExpireDeadlines(RowController[DueJob]):
    """The controller of `timer_at`."""

    name = EXPIRE_CONTROLLER
    limit = 50

    def select(self, uow: UnitOfWork, limit: int) -> list[DueJob]:
        """Jobs whose timer has come."""
        return [DueJob(job_id) for job_id in uow.jobs.due_timer_ids(uow.now, limit)]

    def next_due(self, uow: UnitOfWork) -> datetime | None:
        """The earliest timer."""
        return uow.jobs.next_timer_at()

    def apply(self, uow: UnitOfWork, work: DueJob, result: None) -> None:
        """Apply every rule whose instant has come; closing the aggregate sets the next one."""
        with self.locked(uow, work.job_id) as aggregate:
            if aggregate is not None:
                limits = self._runtime.limits
                _expire_job(aggregate, limits)
                _expire_attempt(aggregate, limits)
                _expire_instances(aggregate, limits)


def _expire_job(aggregate: JobAggregate, limits: Limits) -> None:
    job, now = aggregate.job, aggregate.now
    waits = job.state in CLAIMABLE_JOB_STATES
    works = job.state in ATTEMPT_JOB_STATES and job.state is not JobState.STOPPING
    if waits and job.started_at is None and _come(job.max_wait_at, now):
        message = "No machine became available within max_wait."
        aggregate.move_job(JobEvent.GIVEN_UP, message, reason=EndReason.MAX_WAIT_REACHED.value)
        wind_down(aggregate, EndReason.MAX_WAIT_REACHED, message)
        return
    if (waits or works) and job.deadline_missed_at is None and _come(job.deadline_at, now):
        _deadline_passed(aggregate, limits)
        waits = job.state in CLAIMABLE_JOB_STATES
        works = job.state in ATTEMPT_JOB_STATES and job.state is not JobState.STOPPING
    if (waits or works) and _come(job.run_limit_at, now):
        message = "The job has run for max_duration."
        order_stop(aggregate, StopCause.MAX_DURATION, message, limits)
        return
    if waits and _come(job.hold_until_at, now):
        job.hold_until_at = None
        order_release(aggregate, aggregate.living(), "no new attempt used it in time")


def _deadline_passed(aggregate: JobAggregate, limits: Limits) -> None:
    aggregate.job.deadline_missed_at = aggregate.now
    if aggregate.spec.on_deadline == "stop":
        message = "The deadline has passed, and the spec says `on_deadline: stop`."
        order_stop(aggregate, StopCause.DEADLINE, message, limits)
    else:
        aggregate.record(
            JobEventKind.DEADLINE_MISSED, "The deadline has passed; the job continues."
        )


def _expire_attempt(aggregate: JobAggregate, limits: Limits) -> None:
    attempt, now = aggregate.attempt, aggregate.now
    if attempt is None:
        return
    if attempt.state is AttemptState.PROVISIONING and _come(attempt.form_until_at, now):
        if shrink_to_registered(aggregate, "the other machines did not start in time"):
            advance_attempt(aggregate, limits)
            return
        latest = attempt.created_at + timedelta(seconds=limits.provisioning_seconds)
        if now < latest:
            attempt.form_until_at = latest  # those it was to go on with are gone, too
            return
        message = "Not all machines were ready in time."
        aggregate.move_attempt(attempt, AttemptEvent.PROVISIONING_EXPIRED, message)
        end_attempt(aggregate, EndReason.REGISTRATION_TIMEOUT, message, limits)
    elif attempt.state is AttemptState.PREPARING and _come(attempt.form_until_at, now):
        for member in aggregate.members:
            if member.prepared_at is None and member.outcome is None:
                member.outcome = MemberOutcome.FAILED.value
                member.end = {
                    "reason": EndReason.PREPARATION_FAILED.value,
                    "error": {"type": None, "message": "it was not ready in time"},
                }
        advance_attempt(aggregate, limits)
        if attempt.state is AttemptState.PREPARING:
            message = "Every machine was ready, but no trainer started in time."
            enter_settling(aggregate, AttemptEvent.STALL_DETECTED, message, limits)
    elif attempt.state is AttemptState.DRAINING and _come(attempt.drain_expires_at, now):
        message = "The time to save has run out."
        enter_settling(aggregate, AttemptEvent.DRAIN_EXPIRED, message, limits)
    elif attempt.state is AttemptState.SETTLING:
        advance_attempt(aggregate, limits)


def _expire_instances(aggregate: JobAggregate, limits: Limits) -> None:
    for instance in aggregate.living():
        if instance.state is InstanceState.INTERRUPTING and _come(
            instance.overdue_at, aggregate.now
        ):
            record_overdue(aggregate, instance, limits)
        elif instance.state is InstanceState.LAUNCHED and _come(
            instance.register_until_at, aggregate.now
        ):
            record_unregistered(aggregate, instance, limits)


def _come(instant: datetime | None, now: datetime) -> bool:
    return instant is not None and instant <= now
