"""What people have done: listed, exported, verified; and what was refused.

A maintainer reads the project's; auditors and admins read all of the deployment's. Not here: how
rows come about (`app.orchestration.audit`), or the page (`app.web.audit_page`).
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import asdict, replace
from datetime import date
from typing import Annotated, Any, Final, Literal
from uuid import UUID

import orjson
from anyio import from_thread
from fastapi import APIRouter, Query, Request
from starlette.responses import Response, StreamingResponse

from app.api.audit.audit_shapes import AuditEntryShape, AuditPage, RefusedPage, VerifiedShape
from app.api.serving.api_parts import ApiParts, parts_of
from app.api.serving.auth import AuditReader, DeploymentReader, require_caller
from app.api.serving.json_answers import as_json, dumps, page
from app.api.serving.key_ring import PROJECT_HEADER
from app.api.serving.shapes import fields_of
from app.domain.access.may import DEPLOYMENT, AccessDecision, Resource, may, require
from app.domain.access.principal import Principal
from app.domain.access.roles import Action
from app.domain.audit.audit_action import read_actions
from app.domain.units.cursors import cursor_of, read_cursor
from app.domain.units.errors import Forbidden
from app.domain.units.instants import usual_day
from app.domain.units.spreadsheet_text import safe_cell
from app.orchestration.access.manage_projects import audited_project
from app.orchestration.access.while_allowed import while_allowed
from app.orchestration.audit.seal_audit import seal_store
from app.orchestration.audit.verify_audit import verify_part
from app.storage.audit.audit_reports import WHO_MAX, AuditFilter, AuditReports, AuditRow

router = APIRouter(prefix="/api/v1", tags=["audit"])

_PAGE_MAX: Final = 200
_EXPORTED_TOGETHER: Final = 1_000
_REFUSALS_MAX: Final = 1_000
COLUMNS: Final = tuple(AuditEntryShape.model_fields)
"""Of the CSV: new ones are only ever added at the end."""

Day = Annotated[date | None, Query(description="Of this day in UTC, as 2026-01-31")]
_TEXT: Final = {"schema": {"type": "string"}}


@router.get(
    "/audit",
    response_model=None,
    responses={
        200: {"model": AuditPage, "content": {"text/csv": _TEXT, "application/jsonl": _TEXT}}
    },
)
def audit(
    request: Request,
    caller: AuditReader,
    who: Annotated[
        str | None,
        Query(
            max_length=WHO_MAX,
            description="Name of a person or a key, or PROJECT/KEY, or PERSON/KEY",
        ),
    ] = None,
    action: Annotated[
        str | None, Query(max_length=400, description="As job.cancel, or job; with commas")
    ] = None,
    project: Annotated[
        str | None,
        Query(max_length=63, description="Default: the request's; for auditors and admins all"),
    ] = None,
    day: Day = None,
    cursor: Annotated[str | None, Query(max_length=80, description="`next` of a page")] = None,
    limit: Annotated[int, Query(ge=1, le=_PAGE_MAX)] = 50,
    form: Annotated[Literal["json", "csv", "jsonl"], Query(alias="format")] = "json",
) -> Response:
    """What people did, newest first: submissions, commands, keys, projects, sign-ins.

    As CSV or JSON lines whole, whatever `limit` and `cursor` say. Of the project with a
    maintainer's key; with an auditor's or an admin's of all, unless the request names a project.
    """
    parts = parts_of(request)
    wanted = AuditFilter(
        _project_of(request, parts, caller, project),
        limit,
        who=who,
        actions=read_actions(action),
        day=usual_day(day),
        before=None if cursor is None else read_cursor(cursor),
    )
    if form != "json":

        def ask() -> None:
            reader = from_thread.run(require_caller, request)
            if _project_of(request, parts, reader, project) != wanted.project_id:
                raise Forbidden(f"{reader.name} does not read every project any more.")

        rows = while_allowed(_parts(parts.audit, wanted), ask, parts.runtime.clock)
        if form == "csv":
            return StreamingResponse(csv_parts(rows), media_type="text/csv")
        return StreamingResponse(json_parts(rows), media_type="application/jsonl")
    found = parts.audit.rows(replace(wanted, limit=limit + 1))
    more = found[limit - 1].entry if len(found) > limit else None
    following = None if more is None else cursor_of(more.at, more.id)
    return page([_document(row) for row in found[:limit]], following)


@router.get("/audit/refusals", response_model=None, responses={200: {"model": RefusedPage}})
def refusals(
    request: Request,
    caller: DeploymentReader,
    day: Day = None,
    limit: Annotated[int, Query(ge=1, le=_REFUSALS_MAX)] = 200,
) -> Response:
    """Refused attempts, counted by minute, address, key and route; within a few seconds."""
    found = parts_of(request).audit.refusals(usual_day(day), limit)
    return page([asdict(row) for row in found], None)


@router.get("/audit/verify", response_model=None, responses={200: {"model": VerifiedShape}})
def verify(
    request: Request,
    caller: DeploymentReader,
    after: Annotated[int, Query(ge=0, le=1 << 62, description="`next` of a part")] = 0,
) -> Response:
    """Compare rows, seals and the seals' copies outside the database, for some seconds a request.

    `differences` names the first rows and seals that disagree. `unsealed` is what nothing protects
    yet.
    """
    parts = parts_of(request)
    runtime = parts.runtime
    with runtime.begin() as uow:
        deployment_id = uow.operations.deployment_id()
    store = seal_store(runtime)
    found = verify_part(parts.audit, store, deployment_id, after, runtime.clock)
    agrees = not found.differences
    return as_json({"verified_at": runtime.clock.now(), "agrees": agrees, **asdict(found)})


def csv_parts(parts: Iterator[list[AuditRow]]) -> Iterator[str]:
    """The whole table as CSV, with a header in every case."""
    yield _csv_lines([list(COLUMNS)])
    for rows in parts:
        yield _csv_lines([[_cell(value) for value in _document(row).values()] for row in rows])


def json_parts(parts: Iterator[list[AuditRow]]) -> Iterator[bytes]:
    """The whole table as JSON lines."""
    for rows in parts:
        yield b"".join(dumps(_document(row)) + b"\n" for row in rows)


def _parts(reports: AuditReports, wanted: AuditFilter) -> Iterator[list[AuditRow]]:
    """All rows, the newest first; each part is read when the client has taken the one before."""
    before = None
    while True:
        part = replace(wanted, limit=_EXPORTED_TOGETHER, before=before)
        rows = reports.rows(part)
        if rows:
            yield rows
        if len(rows) < _EXPORTED_TOGETHER:
            return
        before = (rows[-1].entry.at, rows[-1].entry.id)


def _project_of(
    request: Request, parts: ApiParts, caller: Principal, project: str | None
) -> UUID | None:
    """Whose rows are listed; None for all. Raises Forbidden and NotFound."""
    if project is not None:
        with parts.runtime.begin() as uow:
            return audited_project(uow, caller, project)
    sees_all = may(caller, Action.READ_DEPLOYMENT, DEPLOYMENT) is AccessDecision.ALLOWED
    if sees_all and PROJECT_HEADER not in request.headers:
        return None
    require(caller, Action.READ_AUDIT, Resource(caller.project_id))
    return caller.project_id


def _document(row: AuditRow) -> dict[str, Any]:
    names = {"who": row.who, "project": row.project, "subject_name": row.subject_name}
    return fields_of(AuditEntryShape, row.entry, number=row.number, **names)


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return safe_cell(value)
    return orjson.dumps(value).decode().strip('"')


def _csv_lines(rows: list[list[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
