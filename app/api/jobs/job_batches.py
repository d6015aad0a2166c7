"""One command for many jobs, by their ids or by a filter; each answer says what happened to each.

Not here: the command itself (`gang.stop_many`), or commands to one (`job_command_routes`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any
from uuid import UUID

from anyio import to_thread
from fastapi import APIRouter, Body, Depends, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from app.api.jobs.job_command_routes import json_only
from app.api.jobs.job_filters import Since, read_states
from app.api.serving.api_parts import parts_of
from app.api.serving.auth import Commander
from app.api.serving.json_answers import as_json
from app.api.serving.shapes import Shape
from app.domain.access.principal import Principal
from app.domain.lifecycle.job import JobState
from app.domain.lifecycle.job_command import COMMANDED_STATES, JobCommand
from app.domain.units.cursors import cursor_of, read_cursor
from app.domain.units.errors import InvalidValue
from app.domain.wording.near_names import no_such_job
from app.orchestration.gang.stop_many import (
    JOBS_MAX,
    CommandedJob,
    CommandOutcome,
    command_many,
)
from app.storage.reports.job_facts import JobFilter
from app.storage.reports.job_read_models import JobReports

router = APIRouter(prefix="/api/v1/jobs", tags=["jobs"], dependencies=[Depends(json_only)])

_COMPARED_MAX = 10

_NAME = Annotated[str, Field(min_length=1, max_length=80)]


class BatchFilter(BaseModel):
    """Which jobs: as the filters of the list. Without a `state` those that the command is meant
    for: live ones for cancel, those that wait or run for pause, paused ones for resume.
    """

    model_config = ConfigDict(extra="forbid")
    state: Annotated[str | None, Field(max_length=200)] = None
    name: Annotated[str | None, Field(max_length=63)] = None
    labels: Annotated[dict[str, str], Field(max_length=8)] = {}
    since: Since | None = None


class BatchBody(BaseModel):
    """Either `ids` (ids or names) or a `filter` with, after the first part, its `cursor`.

    `now`: cancel at once, without saving first.
    """

    model_config = ConfigDict(extra="forbid")
    action: JobCommand
    ids: Annotated[list[_NAME] | None, Field(min_length=1, max_length=JOBS_MAX)] = None
    filter: BatchFilter | None = None
    cursor: Annotated[str | None, Field(max_length=80)] = None
    now: Annotated[bool, Field(strict=True)] = False


class BatchItem(Shape):
    """What happened to one job. `named`: as the request named it; null under a filter."""

    id: UUID | None
    name: str | None
    named: str | None
    outcome: CommandOutcome
    state: JobState | None
    detail: str | None


class BatchAnswer(Shape):
    """`counts`: items by outcome. `next`: the cursor of the filter's next part, null at its end."""

    action: JobCommand
    items: list[BatchItem]
    counts: dict[str, int]
    next: str | None


@router.post("/batch", response_model=None, responses={200: {"model": BatchAnswer}})
async def batch(
    request: Request, caller: Commander, body: Annotated[BatchBody, Body()]
) -> Response:
    """Cancel, pause or resume many jobs, at most 500 a request, 50 in one transaction each.

    The same request again changes nothing: jobs that are where the command brings them, or on
    their way, are `unchanged`. A job that something else holds is tried for a second or two, then
    `busy`.
    """
    if (body.ids is None) == (body.filter is None):
        raise InvalidValue("give either `ids` or `filter`", "ids")
    if body.cursor is not None and body.filter is None:
        raise InvalidValue("cursor: goes with a `filter`", "cursor")
    if body.now and body.action is not JobCommand.CANCEL:
        raise InvalidValue("now: goes with the action `cancel`", "now")
    parts = parts_of(request)
    following: str | None = None
    if body.filter is not None:
        wanted = _wanted(caller, body)
        found = await to_thread.run_sync(parts.reports.matching, wanted)
        if len(found) > JOBS_MAX:
            found = found[:JOBS_MAX]
            following = cursor_of(found[-1].submitted_at, found[-1].id)
        names: dict[UUID, str] = {one.id: one.name for one in found}
        asked: list[tuple[str | None, UUID | None]] = [(None, one.id) for one in found]
    else:
        written = list(dict.fromkeys(body.ids or ()))
        known = await to_thread.run_sync(parts.reports.named, caller.project_id, written)
        names = dict(known.values())
        asked = [(one, known[one][0] if one in known else None) for one in written]
    order = partial(command_many, parts.runtime, list(names), caller, body.action, at_once=body.now)
    done = await to_thread.run_sync(order)
    unknown = [named for named, job_id in asked if named is not None and job_id is None]
    not_found: dict[str, CommandedJob] = {}
    if unknown:
        find = partial(_not_found, parts.reports, caller.project_id, unknown)
        not_found = await to_thread.run_sync(find)
    items = [_item(named, job_id, names, done, not_found) for named, job_id in asked]
    counts = Counter(item["outcome"] for item in items)
    return as_json(
        {"action": body.action, "items": items, "counts": dict(counts), "next": following}
    )


def _wanted(caller: Principal, body: BatchBody) -> JobFilter:
    """The filter, with one job more than a request takes: it tells whether there is a next part."""
    written, cursor = body.filter or BatchFilter(), body.cursor
    meant = tuple(sorted(COMMANDED_STATES[body.action]))
    return JobFilter(
        project_id=caller.project_id,
        limit=JOBS_MAX + 1,
        states=meant if written.state is None else read_states(written.state),
        name=written.name,
        labels=written.labels,
        since=written.since,
        before=None if cursor is None else read_cursor(cursor),
    )


def _not_found(
    reports: JobReports, project_id: UUID, unknown: Sequence[str]
) -> dict[str, CommandedJob]:
    """By what was written; of many, only the first are compared with the names of jobs."""
    names = reports.newest_names(project_id)
    return {
        written: CommandedJob(
            CommandOutcome.NOT_FOUND,
            None,
            no_such_job(written, names if index < _COMPARED_MAX else []),
        )
        for index, written in enumerate(unknown)
    }


def _item(
    named: str | None,
    job_id: UUID | None,
    names: Mapping[UUID, str],
    done: Mapping[UUID, CommandedJob],
    not_found: Mapping[str, CommandedJob],
) -> dict[str, Any]:
    told = not_found[str(named)] if job_id is None else done[job_id]
    return {
        "id": job_id,
        "name": None if job_id is None else names[job_id],
        "named": named,
        "outcome": told.outcome,
        "state": told.state,
        "detail": told.detail,
    }
