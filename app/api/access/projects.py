"""Projects of the deployment: list, make, archive, take back.

Not here: the rules (`app.orchestration.access.manage_projects`).
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Depends, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from app.api.access.access_shapes import ProjectPage, ProjectShape
from app.api.jobs.job_command_routes import json_only
from app.api.serving.api_parts import parts_of
from app.api.serving.auth import DeploymentAdmin, DeploymentReader
from app.api.serving.json_answers import as_json, page
from app.api.serving.shapes import fields_of
from app.domain.access.principal import Principal
from app.domain.projects.project_rules import PROJECTS_MAX
from app.orchestration.access.manage_projects import create_project, set_archived

router = APIRouter(prefix="/api/v1", tags=["projects"], dependencies=[Depends(json_only)])


class NewProject(BaseModel):
    """A project's name, which never changes."""

    model_config = ConfigDict(extra="forbid", strict=True)
    name: Annotated[str, Field(max_length=200)]


@router.get("/projects", response_model=None, responses={200: {"model": ProjectPage}})
def projects(request: Request, caller: DeploymentReader) -> Response:
    """All projects by name, archived ones too."""
    with parts_of(request).runtime.begin() as uow:
        found = uow.keys.projects(uow.now, PROJECTS_MAX)
    return page([fields_of(ProjectShape, row) for row in found], None)


@router.post(
    "/projects", status_code=201, response_model=None, responses={201: {"model": ProjectShape}}
)
def create(
    request: Request, caller: DeploymentAdmin, body: Annotated[NewProject, Body()]
) -> Response:
    """Make a project. It has no keys yet: `POST /keys` makes them, in the project that the header
    `Lowtide-Project` names.
    """
    runtime = parts_of(request).runtime
    with runtime.begin() as uow:
        made = create_project(uow, runtime.entropy, caller, body.name)
    return as_json(fields_of(ProjectShape, made), 201)


@router.post(
    "/projects/{project}/archive", response_model=None, responses={200: {"model": ProjectShape}}
)
def archive(request: Request, caller: DeploymentAdmin, project: str) -> Response:
    """Let the project take no new jobs. Those that it has go on, and its keys still read."""
    return _set_archived(request, caller, project, archived=True)


@router.post(
    "/projects/{project}/restore", response_model=None, responses={200: {"model": ProjectShape}}
)
def restore(request: Request, caller: DeploymentAdmin, project: str) -> Response:
    """Let an archived project take jobs again."""
    return _set_archived(request, caller, project, archived=False)


def _set_archived(request: Request, caller: Principal, project: str, *, archived: bool) -> Response:
    runtime = parts_of(request).runtime
    with runtime.begin() as uow:
        changed = set_archived(uow, runtime.entropy, caller, project, archived=archived)
    return as_json(fields_of(ProjectShape, changed))
