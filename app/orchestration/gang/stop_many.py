"""One command for many jobs: each batch is one transaction, and no locked job holds up the others.

Not here: what a stop means for one job (`stop_job`), or which jobs a person named (`app.api`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from uuid import UUID

from app.domain.access.may import Resource, require
from app.domain.access.principal import Principal
from app.domain.access.roles import Action
from app.domain.lifecycle.job import JobState
from app.domain.lifecycle.job_command import JobCommand, has_happened
from app.domain.units.errors import CommandRefused, Forbidden
from app.orchestration.frame.aggregate import JobAggregate, open_job
from app.orchestration.frame.runtime import Limits, Runtime
from app.orchestration.gang.command_job import CONTROLLERS, carry_out

JOBS_MAX = 500
"""Jobs of one request: fewer than a client's patience of twenty seconds allows."""
_JOBS_OF_TRANSACTION = 50
# A controller holds a job for some milliseconds; what is locked for longer is told as busy.
_ROUNDS_FOR_BUSY = 5
_SECONDS_BETWEEN_ROUNDS = 0.3


class CommandOutcome(StrEnum):
    """What a command for many jobs did to one of them."""

    DONE = "done"
    UNCHANGED = "unchanged"
    """An earlier command has done the same."""
    REFUSED = "refused"
    """The job's state does not allow it, or the role of the key."""
    BUSY = "busy"
    """Another transaction holds the job; nothing was changed."""
    NOT_FOUND = "not_found"


@dataclass(frozen=True, slots=True)
class CommandedJob:
    """One job's part in a command. state: None where the job was not read. detail: a sentence."""

    outcome: CommandOutcome
    state: JobState | None = None
    detail: str | None = None


_BUSY = CommandedJob(CommandOutcome.BUSY, None, "It is being changed at this moment; try again.")


def command_many(
    runtime: Runtime,
    job_ids: Collection[UUID],
    principal: Principal,
    command: JobCommand,
    *,
    at_once: bool = False,
) -> dict[UUID, CommandedJob]:
    """Command these jobs, 50 in one transaction; locked ones are tried for a second or two.

    It waits between its rounds: not for an event loop's thread. at_once: as for `command_jobs`.
    """
    done: dict[UUID, CommandedJob] = {}
    left = sorted(job_ids)
    for turn in range(_ROUNDS_FOR_BUSY):
        if turn:
            runtime.clock.sleep(_SECONDS_BETWEEN_ROUNDS)
        for batch in _batches(left):
            done |= command_jobs(runtime, batch, principal, command, at_once=at_once)
        left = [job_id for job_id in left if done[job_id].outcome is CommandOutcome.BUSY]
        if not left:
            break
    return done


def _batches(job_ids: Sequence[UUID]) -> list[Sequence[UUID]]:
    starts = range(0, len(job_ids), _JOBS_OF_TRANSACTION)
    return [job_ids[start : start + _JOBS_OF_TRANSACTION] for start in starts]


def command_jobs(
    runtime: Runtime,
    job_ids: Collection[UUID],
    principal: Principal,
    command: JobCommand,
    *,
    at_once: bool = False,
) -> dict[UUID, CommandedJob]:
    """Command these jobs in one transaction; locked ones are skipped and told as busy.

    at_once: cancel without saving. Jobs are locked in the order of their ids, and nothing but what
    they own after them.
    """
    done: dict[UUID, CommandedJob] = {}
    with runtime.begin() as uow:
        for job_id in sorted(job_ids):
            with open_job(
                uow, runtime.entropy, job_id, principal.actor, skip_locked=True, looking=True
            ) as aggregate:
                done[job_id] = (
                    _BUSY
                    if aggregate is None
                    else _order(aggregate, principal, command, runtime.limits, at_once)
                )
        if any(one.outcome is CommandOutcome.DONE for one in done.values()):
            uow.notify_after_commit(*CONTROLLERS)
    return done


def _order(
    aggregate: JobAggregate,
    principal: Principal,
    command: JobCommand,
    limits: Limits,
    at_once: bool,
) -> CommandedJob:
    job = aggregate.job
    try:
        require(principal, Action.COMMAND_JOB, Resource.of_job(job))
    except Forbidden as refused:
        return CommandedJob(CommandOutcome.REFUSED, job.state, refused.message)
    if has_happened(command, job.state, job.stop_cause) and not (
        at_once and _can_be_hastened(aggregate, limits)
    ):
        return CommandedJob(CommandOutcome.UNCHANGED, job.state, job.end_message)
    person = aggregate.actor.name
    message = {
        JobCommand.RESUME: "Resumed: the job is back in the queue.",
        JobCommand.PAUSE: f"Paused by {person}.",
        JobCommand.CANCEL: f"Cancelled by {person}{', at once' if at_once else ''}.",
    }[command]
    try:
        carry_out(aggregate, principal, command, message, limits, at_once=at_once)
    except CommandRefused as refused:
        return CommandedJob(CommandOutcome.REFUSED, job.state, refused.message)
    return CommandedJob(CommandOutcome.DONE, job.state, message)


def _can_be_hastened(aggregate: JobAggregate, limits: Limits) -> bool:
    """Whether a job that is being cancelled would end sooner by a cancel at once."""
    attempt = aggregate.attempt
    if aggregate.job.state is not JobState.STOPPING or attempt is None:
        return False
    if attempt.drain_until_at is None:
        return False
    return attempt.drain_until_at > aggregate.now + timedelta(seconds=limits.stop_now_seconds)
