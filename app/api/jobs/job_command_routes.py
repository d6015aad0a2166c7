"""Commands to one job: cancel, pause, resume. Each is one transaction under the job's lock.

Not here: what a stop means for attempts and machines (`app.orchestration.gang.stop_job`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Body, Depends, HTTPException, Request
from pydantic import BaseModel, ConfigDict, WithJsonSchema
from starlette.responses import Response

from app.api.jobs.job_document import job_document
from app.api.jobs.job_shapes import JobDetail
from app.api.serving.api_parts import ApiParts, parts_of
from app.api.serving.auth import Commander
from app.api.serving.json_answers import as_json
from app.domain.access.may import Resource, require
from app.domain.access.principal import Principal
from app.domain.access.roles import Action
from app.domain.lifecycle.job_command import JobCommand
from app.domain.units.errors import InvalidValue, NotFound
from app.domain.units.money import MICROUSD_PER_USD, parse_usd
from app.orchestration.frame.aggregate import JobAggregate, open_job
from app.orchestration.gang.stop_job import command_stop, resume

_CONTROLLERS = ("claim_jobs", "release_instances", "reconcile_instances")


def json_only(request: Request) -> None:
    """415 for a body that says it is something else than JSON."""
    written = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    empty = request.headers.get("content-length", "0") == "0"
    if written != "application/json" and not (empty and not written):
        raise HTTPException(415, "Send the body as Content-Type: application/json.")


router = APIRouter(prefix="/api/v1/jobs", tags=["jobs"], dependencies=[Depends(json_only)])


class CancelBody(BaseModel):
    """`now`: kill at once, without saving first."""

    model_config = ConfigDict(extra="forbid", strict=True)
    now: bool = False


_BUDGET_SHAPE = {"anyOf": [{"type": "number"}, {"type": "string"}, {"type": "null"}]}


class ResumeBody(BaseModel):
    """`add_budget_usd`: raise the job's cap by this much, as 50, "50" or "+50"."""

    model_config = ConfigDict(extra="forbid", strict=True)
    add_budget_usd: Annotated[object, WithJsonSchema(_BUDGET_SHAPE)] = None


@router.post("/{job}/cancel", response_model=None, responses={200: {"model": JobDetail}})
def cancel(
    request: Request,
    caller: Commander,
    job: str,
    body: Annotated[CancelBody | None, Body()] = None,
) -> Response:
    """Stop the job for good, after a last save where one can be, unless `now`."""
    at_once = body is not None and body.now
    how = ", at once" if at_once else ""
    parts = parts_of(request)

    def order(aggregate: JobAggregate) -> None:
        message = f"Cancelled by {caller.key_name}{how}."
        limits = parts.runtime.limits
        command_stop(aggregate, JobCommand.CANCEL, message, limits, at_once=at_once)

    return _command(parts, caller, job, order)


@router.post("/{job}/pause", response_model=None, responses={200: {"model": JobDetail}})
def pause(request: Request, caller: Commander, job: str) -> Response:
    """Save, give the machines back and wait for `resume`."""
    parts = parts_of(request)

    def order(aggregate: JobAggregate) -> None:
        message = f"Paused by {caller.key_name}."
        command_stop(aggregate, JobCommand.PAUSE, message, parts.runtime.limits)

    return _command(parts, caller, job, order)


@router.post("/{job}/resume", response_model=None, responses={200: {"model": JobDetail}})
def resume_job(
    request: Request,
    caller: Commander,
    job: str,
    body: Annotated[ResumeBody | None, Body()] = None,
) -> Response:
    """Put a paused job back into the queue, with more budget when some is given."""
    added = None if body is None else _added_budget(body.add_budget_usd)
    return _command(parts_of(request), caller, job, lambda aggregate: resume(aggregate, added))


def _command(
    parts: ApiParts, caller: Principal, job: str, order: Callable[[JobAggregate], None]
) -> Response:
    runtime = parts.runtime
    job_id = parts.reports.job_id(caller.project_id, job)
    with runtime.begin() as uow:
        found = uow.jobs.get(job_id)
        if found is not None:
            # Budgets come before jobs in the order of locks, and a resume may raise the cap.
            uow.money.lock_budgets(found.project_id, found.budget_id)
        with open_job(uow, runtime.entropy, job_id, caller.actor) as aggregate:
            if aggregate is None:
                raise NotFound(f"There is no job {job[:80]!r} in this project.")
            require(caller, Action.COMMAND_JOB, Resource.of_job(aggregate.job))
            order(aggregate)
        uow.notify_after_commit(*_CONTROLLERS)
    return as_json(job_document(parts.reports.job(job_id), runtime.clock.now()))


def _added_budget(written: object) -> int | None:
    if written is None:
        return None
    amount = written.strip().removeprefix("+") if isinstance(written, str) else written
    try:
        return parse_usd(amount, at_least_microusd=MICROUSD_PER_USD // 100)
    except InvalidValue as error:
        raise InvalidValue(f"add_budget_usd: {error.message}", "add_budget_usd") from error
