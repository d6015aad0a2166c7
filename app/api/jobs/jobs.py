"""Jobs: submit one, list them, see one.

Submitting and listing are async and each a single statement by hand: they carry the load. Not
here: commands to a job (`job_command_routes`) and its history (`job_history`).
"""

from __future__ import annotations

from functools import partial
from typing import Annotated

from anyio import to_thread
from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from app.api.jobs.job_document import job_document
from app.api.jobs.job_filters import Since, read_states
from app.api.jobs.job_shapes import SUBMIT_DOCS, JobAccepted, JobCopy, JobDetail, JobPage
from app.api.serving.api_parts import ApiParts, parts_of
from app.api.serving.auth import Reader, require_caller
from app.api.serving.json_answers import JSON, as_json
from app.api.serving.shapes import fields_of
from app.api.submission.spec_body import read_accept_risk, read_idempotency_key, read_spec
from app.api.submission.submission_checks import (
    EVALUATORS,
    check_submission,
    warnings_of,
    with_values,
)
from app.domain.access.may import require_somewhere
from app.domain.access.principal import Principal
from app.domain.access.roles import Action
from app.domain.spec.job_spec import JobSpec, spec_digest
from app.domain.units.cursors import read_cursor
from app.domain.units.errors import InvalidValue, SpecError
from app.orchestration.estimates.evaluate_promise import evaluate_promise, promise_key
from app.orchestration.queue.copy_job import copied_spec
from app.orchestration.queue.submit_job import accept, replay
from app.storage.jobs.job_submission import Submitted
from app.storage.reports.job_facts import JobFilter

router = APIRouter(prefix="/api/v1/jobs", tags=["jobs"])

PAGE_MAX = 200
_LABELS_MAX = 8
_LABEL_MAX = 300


@router.post("", status_code=201, **SUBMIT_DOCS)
async def submit(request: Request) -> Response:
    """Submit a job. The body is the job spec, as JSON or YAML.

    With an `Idempotency-Key`, the same spec again gets the same job (200); another spec is 409.
    Of a spec with an `estimate`, a deadline that cannot be met is refused (`kind` impossible); one,
    a budget or `max_duration`, that may not hold, too (`kind` risky), unless `accept_risk` is true.
    """
    parts = parts_of(request)
    caller = await require_caller(request)
    require_somewhere(caller, Action.SUBMIT)
    key = read_idempotency_key(request)
    insisted = read_accept_risk(request)
    spec = await read_spec(request)
    caller = await parts.keys.in_project_of(caller, spec)
    submitted, stored = await submit_spec(parts, caller, spec, key, insisted)
    document = fields_of(
        JobAccepted,
        submitted,
        id=submitted.job_id,
        project=caller.project_name,
        warnings=warnings_of(parts, stored),
    )
    return as_json(
        document,
        201 if submitted.created else 200,
        {"Location": f"/api/v1/jobs/{submitted.job_id}"},
    )


async def submit_spec(
    parts: ApiParts, caller: Principal, spec: JobSpec, key: str | None, accept_risk: bool
) -> tuple[Submitted, JobSpec]:
    """Check a spec, weigh its promise and store the job; `key` makes a repetition find it.

    The spec that is returned is the one that was stored; of a repetition, the one that was asked.
    Raises SpecError and CommandRefused.
    """
    written = await with_values(parts, caller, spec)
    submitted, spec = await _submit(parts, caller, written, key, accept_risk)
    if submitted.created:
        estimated = () if spec.estimate is None else ("keep_estimates",)
        parts.runtime.wakeups.notify(("claim_jobs", *estimated))
    return submitted, spec


async def _submit(
    parts: ApiParts, caller: Principal, written: JobSpec, key: str | None, accept_risk: bool
) -> tuple[Submitted, JobSpec]:
    runtime = parts.runtime
    try:
        resolved = await check_submission(parts, caller, written)
        spec = resolved.spec
        promise = promise_key(caller.project_id, spec, accept_risk)
        if spec.has_limit and not parts.accepted.has(promise):
            known = None if key is None else await parts.hot.known_job(caller.project_id, key)
            if known is not None:
                return replay(known, spec_digest(written)), written
            evaluate = partial(evaluate_promise, accept_risk=accept_risk)
            await to_thread.run_sync(evaluate, runtime, caller.project_id, spec, limiter=EVALUATORS)
            parts.accepted.add(promise)
        now = runtime.clock.now()
        stored = await accept(parts.hot, runtime.entropy, now, caller, resolved, key)
        return stored, spec
    except SpecError:
        # What was fine at first (a time that lay ahead) must stay fine for a repetition.
        known = None if key is None else await parts.hot.known_job(caller.project_id, key)
        if known is None:
            raise
        return replay(known, spec_digest(written)), written


@router.get("", response_model=None, responses={200: {"model": JobPage}})
async def list_jobs(
    request: Request,
    caller: Reader,
    state: Annotated[
        str | None, Query(max_length=200, description="States, or live or ended; with commas")
    ] = None,
    name: Annotated[str | None, Query(max_length=63, description="A part of the name")] = None,
    label: Annotated[
        list[str] | None,
        Query(max_length=_LABELS_MAX, description="key=value; repeatable: all must be there"),
    ] = None,
    since: Annotated[Since | None, Query(description="Submitted then or later")] = None,
    cursor: Annotated[str | None, Query(max_length=80, description="`next` of a page")] = None,
    limit: Annotated[int, Query(ge=1, le=PAGE_MAX)] = 50,
) -> Response:
    """The project's jobs, newest first."""
    wanted = JobFilter(
        project_id=caller.project_id,
        limit=limit,
        states=read_states(state),
        name=name,
        labels=_labels(label or []),
        since=since,
        before=None if cursor is None else read_cursor(cursor),
    )
    parts = parts_of(request)
    found = await parts.hot.list_jobs(wanted, parts.runtime.clock.now())
    return Response(found, media_type=JSON)


@router.get("/{job}", response_model=None, responses={200: {"model": JobDetail}})
def show(request: Request, caller: Reader, job: str) -> Response:
    """Everything about one job, by its id or name: the page of a job is made of this."""
    parts = parts_of(request)
    facts = parts.reports.job(parts.reports.job_id(caller.project_id, job))
    return as_json(job_document(facts, parts.runtime.clock.now()))


@router.get("/{job}/copy", response_model=None, responses={200: {"model": JobCopy}})
def copy(request: Request, caller: Reader, job: str) -> Response:
    """The job's spec under a name that is free now, to be changed or submitted as it is.

    Stores nothing. The working folder is the one that the job was submitted with.
    """
    parts = parts_of(request)
    job_id = parts.reports.job_id(caller.project_id, job)
    with parts.runtime.begin() as uow:
        found = uow.jobs.get(job_id)
        assert found is not None, "its id was just found"
        spec = copied_spec(uow, found)
    return as_json({"name": spec.get("name"), "copied_from": found.name, "spec": spec})


def _labels(written: list[str]) -> dict[str, str]:
    labels: dict[str, str] = {}
    for text in written:
        name, separator, value = text.partition("=")
        if len(text) > _LABEL_MAX:
            raise InvalidValue(
                f"label: {text[:40]!r}… has {len(text)} characters; at most {_LABEL_MAX}", "label"
            )
        if not separator or not name:
            raise InvalidValue(
                f"label: {text[:40]!r} needs a key and a value; write key=value, as in team=vision",
                "label",
            )
        if labels.setdefault(name, value) != value:
            raise InvalidValue(
                f"label: {name[:40]} is given with two values, {labels[name][:40]!r} and "
                f"{value[:40]!r}, and a job has one; leave one out",
                "label",
            )
    return labels
