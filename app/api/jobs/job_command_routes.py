"""Commands to one job: cancel, pause, resume.

Not here: who may, and what a command does (`app.orchestration.gang.command_job`).
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Depends, HTTPException, Request
from pydantic import BaseModel, ConfigDict, WithJsonSchema
from starlette.responses import Response

from app.api.jobs.job_document import job_document
from app.api.jobs.job_shapes import JobDetail
from app.api.serving.api_parts import ApiParts, parts_of
from app.api.serving.auth import Commander
from app.api.serving.json_answers import as_json
from app.domain.access.principal import Principal
from app.domain.lifecycle.job_command import JobCommand
from app.domain.units.errors import InvalidValue
from app.domain.units.money import MICROUSD_PER_USD, parse_usd
from app.orchestration.gang.command_job import command_job


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
    message = f"Cancelled by {caller.name}{', at once' if at_once else ''}."
    return _command(parts_of(request), caller, job, JobCommand.CANCEL, message, at_once=at_once)


@router.post("/{job}/pause", response_model=None, responses={200: {"model": JobDetail}})
def pause(request: Request, caller: Commander, job: str) -> Response:
    """Save, give the machines back and wait for `resume`."""
    message = f"Paused by {caller.name}."
    return _command(parts_of(request), caller, job, JobCommand.PAUSE, message)


@router.post("/{job}/resume", response_model=None, responses={200: {"model": JobDetail}})
def resume_job(
    request: Request,
    caller: Commander,
    job: str,
    body: Annotated[ResumeBody | None, Body()] = None,
) -> Response:
    """Put a paused job back into the queue, with more budget when some is given."""
    added = None if body is None else _added_budget(body.add_budget_usd)
    return _command(parts_of(request), caller, job, JobCommand.RESUME, "", added=added)


def _command(
    parts: ApiParts,
    caller: Principal,
    job: str,
    command: JobCommand,
    message: str,
    *,
    at_once: bool = False,
    added: int | None = None,
) -> Response:
    job_id = parts.reports.job_id(caller.project_id, job)
    command_job(
        parts.runtime, caller, job_id, command, message, at_once=at_once, add_budget_microusd=added
    )
    return as_json(job_document(parts.reports.job(job_id), parts.runtime.clock.now()))


def _added_budget(written: object) -> int | None:
    if written is None:
        return None
    amount = written.strip().removeprefix("+") if isinstance(written, str) else written
    try:
        return parse_usd(amount, at_least_microusd=MICROUSD_PER_USD // 100)
    except InvalidValue as error:
        raise InvalidValue(f"add_budget_usd: {error.message}", "add_budget_usd") from error
