"""Stop, pause and resume a job: commands of people, and the order every limit gives.

Lives here: the order and its first consequence. Not here: what follows when the attempt has left
(`end_attempt`), or when limits apply (`enforce_budgets`, `expire_deadlines`).
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from app.domain.billing.budget import BudgetCheck
from app.domain.lifecycle.attempt import AttemptState, DrainCause
from app.domain.lifecycle.events import JobEventKind
from app.domain.lifecycle.job import (
    JobEvent,
    StopCause,
    event_for_stop,
    raise_stop_cause,
    stop_end_reason,
)
from app.domain.lifecycle.job_command import JobCommand, require_possible
from app.domain.projects.read_rules import parse_rules
from app.domain.projects.resolve_spec import require_budget
from app.domain.units.errors import CommandRefused
from app.domain.units.money import format_usd
from app.orchestration.frame.aggregate import JobAggregate
from app.orchestration.frame.runtime import Limits
from app.orchestration.gang.advance_attempt import order_drain
from app.orchestration.gang.end_attempt import CLAIM_CONTROLLER, wind_down

_CAUSES: Final = {JobCommand.CANCEL: StopCause.USER, JobCommand.PAUSE: StopCause.PAUSE}


def command_stop(
    aggregate: JobAggregate,
    command: JobCommand,
    message: str,
    limits: Limits,
    *,
    at_once: bool = False,
) -> None:
    """Cancel or pause the job as a person asks.

    Raises CommandRefused, with what to do instead, where the job's state does not allow it.
    """
    job = aggregate.job
    require_possible(command, job.name, job.state, job.stop_cause)
    order_stop(aggregate, _CAUSES[command], message, limits, at_once=at_once)


def order_stop(
    aggregate: JobAggregate,
    cause: StopCause,
    message: str,
    limits: Limits,
    *,
    at_once: bool = False,
) -> None:
    """Stop the job for `cause`: save first where something runs, unless `at_once`.

    Raises IllegalTransition (a CommandRefused) where the job's state does not allow it.
    """
    job = aggregate.job
    event = event_for_stop(job.state, cause)
    aggregate.move_job(event, message, cause=cause.value)
    if event is not JobEvent.STOP_ORDERED:
        wind_down(aggregate, stop_end_reason(cause), message)
        return
    job.stop_cause = raise_stop_cause(job.stop_cause, cause)
    job.stop_ordered_at = job.stop_ordered_at or aggregate.now
    if aggregate.attempt is None or aggregate.attempt.state is AttemptState.SETTLING:
        return
    seconds = limits.stop_now_seconds if at_once else limits.drain_seconds
    until = aggregate.now + timedelta(seconds=seconds)
    order_drain(aggregate, DrainCause.STOP, until, message, limits)


def stop_for_budget(aggregate: JobAggregate, check: BudgetCheck, limits: Limits) -> None:
    """Stop the job for the budget that is short; which one is kept while the job is paused."""
    aggregate.job.paused_by_budget = check.short
    order_stop(aggregate, StopCause.BUDGET, check.sentence, limits)


def resume(aggregate: JobAggregate, add_budget_microusd: int | None) -> None:
    """Put a paused job back into the queue, with a higher cap when one is given.

    The caller has locked the budget rows before the job. Raises CommandRefused when the job is
    not paused, and SpecError for a cap that its project does not allow now.
    """
    job, uow = aggregate.job, aggregate.uow
    require_possible(JobCommand.RESUME, job.name, job.state, job.stop_cause)
    if add_budget_microusd is not None:
        own = [
            budget
            for budget in uow.money.lock_budgets(job.project_id, job.budget_id)
            if budget.id == job.budget_id
        ]
        for budget in own:
            if budget.cap_microusd is None:
                raise CommandRefused("The job has no budget, so there is nothing to add to.")
            cap = budget.cap_microusd + add_budget_microusd
            rules = uow.rules.of(job.project_id)
            require_budget(parse_rules(rules.document), rules.project, cap, "add_budget_usd")
            budget.cap_microusd = cap
            aggregate.record(
                JobEventKind.BUDGET_CHANGED,
                f"The budget is now {format_usd(budget.cap_microusd)}.",
                cap_microusd=budget.cap_microusd,
            )
    _back_to_queue(aggregate, JobEvent.RESUMED, "Resumed: the job is back in the queue.")


def resume_with_money(aggregate: JobAggregate) -> None:
    """Put a job that a budget of the month has paused back into the queue."""
    message = "The budget of the month has money again: the job is back in the queue."
    _back_to_queue(aggregate, JobEvent.BUDGET_PERIOD_BEGAN, message)


def _back_to_queue(aggregate: JobAggregate, event: JobEvent, message: str) -> None:
    job = aggregate.job
    job.end_reason = job.end_message = None
    job.stop_cause = job.stop_ordered_at = job.paused_by_budget = None
    job.claimable_at = job.wait_reason = None
    _extend_by_pause(aggregate)
    aggregate.move_job(event, message)
    aggregate.uow.notify_after_commit(CLAIM_CONTROLLER)


def _extend_by_pause(aggregate: JobAggregate) -> None:
    """A paused job neither waits nor runs, so its patience and its time to run stand still.

    A deadline does not: it is a promise about a time of day.
    """
    job = aggregate.job
    paused = aggregate.now - (job.paused_at or aggregate.now)
    job.paused_at = None
    if job.max_wait_at is not None:
        job.max_wait_at += paused
    if job.run_limit_at is not None:
        job.run_limit_at += paused
