"""A person's command to a job: may they, what it does, and the row of the audit that says so.

Lives here: one job in a transaction of its own, and the same inside a transaction for many. Not
here: what a stop means (`stop_job`), or many jobs at once (`stop_many`).
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from app.domain.access.may import Resource, require
from app.domain.access.principal import Principal
from app.domain.access.roles import Action
from app.domain.audit.audit_action import AuditAction, SubjectKind
from app.domain.audit.audit_entry import Subject
from app.domain.lifecycle.job_command import JobCommand
from app.domain.units.errors import NotFound
from app.orchestration.audit.record_action import record_action
from app.orchestration.frame.aggregate import JobAggregate, open_job
from app.orchestration.frame.runtime import Limits, Runtime
from app.orchestration.gang.stop_job import command_stop, resume

CONTROLLERS: Final = ("claim_jobs", "release_instances", "reconcile_instances")
"""Rung after a command."""
_ACTIONS: Final = {
    JobCommand.CANCEL: AuditAction.JOB_CANCEL,
    JobCommand.PAUSE: AuditAction.JOB_PAUSE,
    JobCommand.RESUME: AuditAction.JOB_RESUME,
}


def command_job(
    runtime: Runtime,
    principal: Principal,
    job_id: UUID,
    command: JobCommand,
    message: str,
    *,
    at_once: bool = False,
    add_budget_microusd: int | None = None,
) -> str:
    """Command one job in a transaction of its own; returns its name.

    at_once: cancel without saving. add_budget_microusd: what a resume adds to the job's cap. Raises
    NotFound, Forbidden and CommandRefused.
    """
    with runtime.begin() as uow:
        found = uow.jobs.get(job_id)
        if found is not None:
            # Budgets come before jobs in the order of locks, and a resume may raise the cap.
            uow.money.lock_budgets(found.project_id, found.budget_id)
        with open_job(uow, runtime.entropy, job_id, principal.actor) as aggregate:
            if aggregate is None:
                raise NotFound("This job does not exist.")
            require(principal, Action.COMMAND_JOB, Resource.of_job(aggregate.job))
            carry_out(
                aggregate, principal, command, message, runtime.limits,
                at_once=at_once, add_budget_microusd=add_budget_microusd,
            )  # fmt: skip
            name = aggregate.job.name
        uow.notify_after_commit(*CONTROLLERS)
    return name


def carry_out(
    aggregate: JobAggregate,
    principal: Principal,
    command: JobCommand,
    message: str,
    limits: Limits,
    *,
    at_once: bool = False,
    add_budget_microusd: int | None = None,
) -> None:
    """Do to the locked job what the principal, who may, commands. Raises CommandRefused."""
    job = aggregate.job
    before = _facts(aggregate)
    if command is JobCommand.RESUME:
        resume(aggregate, add_budget_microusd)
    else:
        command_stop(aggregate, command, message, limits, at_once=at_once)
    after = _facts(aggregate)
    if add_budget_microusd is not None:
        after["added_microusd"] = add_budget_microusd
    subject = Subject(SubjectKind.JOB, str(job.id), job.name, job.project_id)
    action = _ACTIONS[command]
    record_action(aggregate.uow, aggregate.entropy, principal, action, subject, before, after)


def _facts(aggregate: JobAggregate) -> dict[str, object]:
    """What a command changes, for the audit's digests."""
    job, attempt = aggregate.job, aggregate.attempt
    return {
        "state": job.state,
        "stop_cause": job.stop_cause,
        "drain_until_at": None if attempt is None else attempt.drain_until_at,
    }
