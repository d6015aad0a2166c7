"""When a rule of time next applies to a job: one instant, stored as `timer_at`.

Lives here: the earliest of all instants, from rows alone. Not here: what happens then
(`expire_deadlines`; both lists of rules must agree, or a timer would ring for ever), and the last
safe moment before a deadline, which moves with progress (`watch_deadlines`).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from app.domain.lifecycle.attempt import AttemptState
from app.domain.lifecycle.entities import Attempt, Instance, Job
from app.domain.lifecycle.instance import InstanceState
from app.domain.lifecycle.job import ATTEMPT_JOB_STATES, CLAIMABLE_JOB_STATES, JobState


def next_timer(
    job: Job,
    attempt: Attempt | None,
    living: Iterable[Instance],
) -> datetime | None:
    """The earliest instant at which a rule applies; None when nothing waits for time."""
    living = list(living)
    instants = [*_of_job(job), *_of_attempt(attempt), *_of_instances(living)]
    return min((instant for instant in instants if instant is not None), default=None)


def _of_job(job: Job) -> list[datetime | None]:
    if job.state in CLAIMABLE_JOB_STATES:
        max_wait_at = job.max_wait_at if job.started_at is None else None
        instants = [max_wait_at, job.run_limit_at, job.hold_until_at]
    elif job.state in ATTEMPT_JOB_STATES and job.state is not JobState.STOPPING:
        instants = [job.run_limit_at]
    else:
        return []
    if job.deadline_missed_at is None:
        instants.append(job.deadline_at)
    return instants


def _of_attempt(attempt: Attempt | None) -> list[datetime | None]:
    if attempt is None:
        return []
    if attempt.state in (AttemptState.PROVISIONING, AttemptState.PREPARING):
        return [attempt.form_until_at]
    if attempt.state is AttemptState.DRAINING:
        return [attempt.drain_expires_at]
    return [attempt.settle_until_at] if attempt.state is AttemptState.SETTLING else []


def _of_instances(living: Iterable[Instance]) -> list[datetime | None]:
    instants: list[datetime | None] = []
    for instance in living:
        if instance.state is InstanceState.INTERRUPTING:
            instants.append(instance.overdue_at)
        if instance.state is InstanceState.LAUNCHED:
            instants.append(instance.register_until_at)
    return instants
