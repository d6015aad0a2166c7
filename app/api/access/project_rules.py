"""Rules of projects: read them, change them, and bring many projects to what a file says.

Not here: what rules may say (`app.domain.projects`), or what is done with them (`manage_rules`).
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Body, Depends, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from app.api.access.access_shapes import AppliedShape, ProjectRulesShape
from app.api.jobs.job_command_routes import json_only
from app.api.serving.api_parts import ApiParts, parts_of
from app.api.serving.auth import Reader, RuleManager
from app.api.serving.json_answers import as_json
from app.api.submission.submission_checks import EVALUATORS
from app.domain.access.principal import Principal
from app.domain.projects.project_rules import ProjectRules
from app.domain.projects.projects_file import ProjectEntry, parse_projects
from app.domain.projects.read_rules import parse_rules
from app.orchestration.access.apply_projects import AppliedProject, apply_projects
from app.orchestration.access.manage_rules import change_rules
from app.storage.access.rules_repository import RulesRow

router = APIRouter(prefix="/api/v1/projects", tags=["projects"], dependencies=[Depends(json_only)])


class NewRules(BaseModel):
    """All rules of the project: what is left out is not limited any more.

    `version`: the one that these were made from; with another one in force the answer is 409. Null,
    or left out: whatever is in force.
    """

    model_config = ConfigDict(extra="forbid", strict=True)
    rules: dict[str, Any]
    version: Annotated[int, Field(ge=0)] | None = None


class ProjectsFile(BaseModel):
    """Projects by name, each with `rules`, `members` and `archived`; what is left out stays as it
    is. `members`: roles by name; people who are not among them are removed.
    """

    model_config = ConfigDict(extra="allow")
    projects: Any = None


@router.get("/{project}/rules", response_model=None, responses={200: {"model": ProjectRulesShape}})
async def rules(request: Request, caller: Reader, project: str) -> Response:
    """The rules that submissions to the project are under."""
    parts = parts_of(request)
    inside = await parts.keys.in_project(caller, project)
    return as_json(_answer(inside, await to_thread.run_sync(_read, parts, inside)))


@router.put("/{project}/rules", response_model=None, responses={200: {"model": ProjectRulesShape}})
async def put_rules(
    request: Request, caller: RuleManager, project: str, body: Annotated[NewRules, Body()]
) -> Response:
    """Replace the project's rules. New submissions are under them within two seconds; jobs that
    there are keep their specs.
    """
    parts = parts_of(request)
    inside = await parts.keys.in_project(caller, project)
    parsed = await to_thread.run_sync(parse_rules, body.rules, limiter=EVALUATORS)
    changed = await to_thread.run_sync(_change, parts, inside, parsed, body.version)
    parts.keys.forget()
    return as_json(_answer(inside, changed))


@router.post("/apply", response_model=None, responses={200: {"model": AppliedShape}})
async def apply(
    request: Request,
    caller: RuleManager,
    body: Annotated[ProjectsFile, Body()],
    dry_run: Annotated[bool, Query(description="Only tell what would change")] = False,
) -> Response:
    """Make the projects that are missing, and change those that differ: all of it, or nothing.

    Never archives a project that the body does not name. To make or archive a project needs an
    admin's key, and so does adding a person that is not a member yet.
    """
    parts = parts_of(request)
    document = body.model_dump(exclude_unset=True)
    entries = await to_thread.run_sync(parse_projects, document, limiter=EVALUATORS)
    applied = await to_thread.run_sync(_apply, parts, caller, entries, dry_run)
    parts.keys.forget()
    return as_json({"dry_run": dry_run, "items": [asdict(one) for one in applied]})


def _read(parts: ApiParts, caller: Principal) -> RulesRow:
    with parts.runtime.begin() as uow:
        return uow.rules.of(caller.project_id)


def _change(
    parts: ApiParts, caller: Principal, wanted: ProjectRules, version: int | None
) -> RulesRow:
    with parts.runtime.begin() as uow:
        return change_rules(uow, parts.runtime.entropy, caller, wanted, version)


def _apply(
    parts: ApiParts, caller: Principal, entries: list[ProjectEntry], dry_run: bool
) -> list[AppliedProject]:
    runtime = parts.runtime
    with runtime.begin() as uow:
        applied = apply_projects(uow, runtime.entropy, caller, entries)
        if dry_run:
            uow.discard()
        return applied


def _answer(caller: Principal, row: RulesRow) -> dict[str, Any]:
    return {
        "project": caller.project_name,
        "version": row.version,
        "changed_at": row.changed_at,
        "changed_by": row.changed_by,
        "rules": row.document,
    }
