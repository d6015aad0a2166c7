"""What the buttons on a job's page do: cancel, pause, resume.

Not here: who may, and what a command does (`app.orchestration.gang.command_job`), or the API's way
to the same commands.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Form, Request
from starlette.responses import Response

from app.domain.access.may import require_role
from app.domain.access.roles import Action
from app.domain.billing.budget import enough_text
from app.domain.lifecycle.job import JobState
from app.domain.lifecycle.job_command import JobCommand
from app.domain.spec.job_spec import parse_spec
from app.domain.units.errors import InvalidValue
from app.domain.units.money import parse_usd
from app.orchestration.gang.command_job import command_job
from app.orchestration.gang.reserve_budget import reserve_window
from app.orchestration.placement.unmet_requirements import quoted_pools, unmet_requirements
from app.web.job.resume_outlook import lack_of_budget
from app.web.page_frame import PageParts, PageRoute, SignedIn, check_form, parts_of, redirect
from app.web.session import Visitor

router = APIRouter(route_class=PageRoute, include_in_schema=False)

_MICROUSD_LEAST = 10_000

Token = Annotated[str, Form(max_length=200)]


@router.post("/jobs/{job}/cancel")
def cancel(
    request: Request,
    visitor: SignedIn,
    job: str,
    form_token: Token = "",
    at_once: Annotated[bool, Form()] = False,
) -> Response:
    """Stop the job for good; what runs saves first, unless `at_once`."""
    message = f"Cancelled by {visitor.actor.name}, {'at once' if at_once else 'after saving'}."
    return _command(request, visitor, job, form_token, JobCommand.CANCEL, message, at_once=at_once)


@router.post("/jobs/{job}/pause")
def pause(request: Request, visitor: SignedIn, job: str, form_token: Token = "") -> Response:
    """Save, give the machines back and wait for `resume`."""
    message = f"Paused by {visitor.actor.name}."
    return _command(request, visitor, job, form_token, JobCommand.PAUSE, message)


@router.post("/jobs/{job}/resume")
def resume_job(
    request: Request,
    visitor: SignedIn,
    job: str,
    form_token: Token = "",
    add_budget_usd: Annotated[str, Form(max_length=40)] = "",
) -> Response:
    """Put a paused job back into the queue, with more budget when some is given."""
    added = _added_budget(add_budget_usd)
    parts = parts_of(request)

    def check(job_id: UUID) -> None:
        _require_enough(parts, job_id, added or 0)

    return _command(
        request, visitor, job, form_token, JobCommand.RESUME, "", added=added, check=check
    )


def _command(
    request: Request,
    visitor: Visitor,
    job: str,
    form_token: str,
    command: JobCommand,
    message: str,
    *,
    at_once: bool = False,
    added: int | None = None,
    check: Callable[[UUID], None] | None = None,
) -> Response:
    """Carry the order out and show the job. Raises CommandRefused, NotFound, FormExpired.

    check: refuses it by what is read before the job is locked.
    """
    check_form(request, visitor, form_token)
    parts = parts_of(request)
    assert visitor.owner is not None
    require_role(visitor.owner, Action.COMMAND_JOB)
    job_id = parts.jobs.job_id(visitor.owner.project_id, job)
    if check is not None:
        check(job_id)
    name = command_job(
        parts.runtime, visitor.owner, job_id, command, message,
        at_once=at_once, add_budget_microusd=added,
    )  # fmt: skip
    return redirect(f"/jobs/{name}")


def _require_enough(parts: PageParts, job_id: UUID, added_microusd: int) -> None:
    """Raises InvalidValue for a budget with which the job would only be paused again."""
    facts = parts.jobs.job(job_id)
    paused, budget = facts.job, facts.budget
    if paused.state is not JobState.PAUSED or budget.cap_microusd is None:
        return
    spec, runtime = parse_spec(paused.spec), parts.runtime
    quoted, now = quoted_pools(parts.jobs, spec), runtime.clock.now()
    unmet = unmet_requirements(quoted, spec, now, paused, limits=runtime.limits)
    window = reserve_window(runtime.limits, Fraction(1))
    lack = lack_of_budget(unmet, budget, spec.nodes.least, window)
    least = lack.microusd
    if added_microusd < least:
        raise InvalidValue(
            f"The budget must be at least {enough_text(budget.cap_microusd + least)} for "
            f"{lack.pays_for}, or the job is paused again: add {enough_text(least)} or more, at "
            "the prices of now.",
            "add_budget_usd",
        )


def _added_budget(written: str) -> int | None:
    """Micro-dollars of "50" or "+50"; None for an empty field."""
    amount = written.strip().removeprefix("+")
    if not amount:
        return None
    try:
        return parse_usd(amount, at_least_microusd=_MICROUSD_LEAST)
    except InvalidValue as error:
        raise InvalidValue(f"The budget to add {error.message}.", "add_budget_usd") from error
