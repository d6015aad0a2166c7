"""One command for many jobs: each batch is one transaction, and no locked job holds up the others.

Not here: what a stop means for one job (`stop_job`), or which jobs a person named (`app.api`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from uuid import UUID

from app.domain.errors import CommandRefused
from app.domain.events import Actor
from app.domain.job import TERMINAL_JOB_STATES, JobState, StopCause
from app.orchestration.aggregate import JobAggregate, open_job
from app.orchestration.runtime import Limits, Runtime
from app.orchestration.stop_job import order_stop

CONTROLLERS = ("claim_jobs", "release_instances", "reconcile_instances")


class CommandOutcome(StrEnum):
    """What a command for many jobs did to one of them."""

    DONE = "done"
    UNCHANGED = "unchanged"
    """An earlier command has done the same."""
    REFUSED = "refused"
    """The job's state does not allow it."""
    BUSY = "busy"
    """Another transaction holds the job; nothing was changed."""
    NOT_FOUND = "not_found"


@dataclass(frozen=True, slots=True)
class CommandedJob:
    """One job's part in a command. state: None where the job was not read. detail: a sentence."""

    outcome: CommandOutcome
    state: JobState | None = None
    detail: str | None = None


_BUSY = CommandedJob(CommandOutcome.BUSY, None, "Something else is changing it; try again.")


def cancel_jobs(
    runtime: Runtime, job_ids: Collection[UUID], actor: Actor, *, at_once: bool
) -> dict[UUID, CommandedJob]:
    """Cancel these jobs in one transaction; locked ones are skipped and told as busy.

    Jobs are locked in the order of their ids, and nothing but what they own after them.
    """
    done: dict[UUID, CommandedJob] = {}
    with runtime.begin() as uow:
        for job_id in sorted(job_ids):
            with open_job(
                uow, runtime.entropy, job_id, actor, skip_locked=True, looking=True
            ) as aggregate:
                done[job_id] = (
                    _BUSY if aggregate is None else _cancel(aggregate, runtime.limits, at_once)
                )
        if any(one.outcome is CommandOutcome.DONE for one in done.values()):
            uow.ring_after_commit(*CONTROLLERS)
    return done


def _cancel(aggregate: JobAggregate, limits: Limits, at_once: bool) -> CommandedJob:
    job = aggregate.job
    if job.state is JobState.CANCELLED or _is_being_cancelled(aggregate, limits, at_once):
        return CommandedJob(CommandOutcome.UNCHANGED, job.state, job.end_message)
    if job.state in TERMINAL_JOB_STATES:
        detail = f"The job has ended already: it is {job.state}."
        return CommandedJob(CommandOutcome.REFUSED, job.state, detail)
    how = ", at once" if at_once else ""
    message = f"Cancelled by {aggregate.actor.name}{how}."
    try:
        order_stop(aggregate, StopCause.USER, message, limits, at_once=at_once)
    except CommandRefused as refused:
        return CommandedJob(CommandOutcome.REFUSED, job.state, refused.message)
    return CommandedJob(CommandOutcome.DONE, job.state, message)


def _is_being_cancelled(aggregate: JobAggregate, limits: Limits, at_once: bool) -> bool:
    """Whether a cancel was ordered before, and ends at least as soon as this one would."""
    job, attempt = aggregate.job, aggregate.attempt
    if job.state is not JobState.STOPPING or job.stop_cause is not StopCause.USER:
        return False
    if not at_once or attempt is None or attempt.drain_until_at is None:
        return True
    return attempt.drain_until_at <= aggregate.now + timedelta(seconds=limits.stop_now_seconds)
