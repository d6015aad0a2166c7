"""Limits of machines: what projects and the deployment may have, and what they have.

Not here: a project's limits being set, which are among its rules (`app.api.access.project_rules`).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Body, Depends, Request
from pydantic import BaseModel, ConfigDict
from starlette.responses import Response

from app.api.jobs.job_command_routes import json_only
from app.api.serving.api_parts import ApiParts, parts_of
from app.api.serving.auth import DeploymentAdmin, DeploymentReader, Reader
from app.api.serving.json_answers import as_json, page
from app.api.serving.shapes import Shape
from app.api.submission.submission_checks import EVALUATORS
from app.domain.access.principal import Principal
from app.domain.launch_limits.launch_limits import LaunchLimits, parse_limits
from app.domain.launch_limits.limit_use import LimitUse
from app.orchestration.deployment.limit_deployment import limit_deployment
from app.orchestration.placement.read_launch_room import deployment_uses, limit_uses
from app.storage.instances.launch_gate import DeploymentLimits

router = APIRouter(prefix="/api/v1", tags=["limits"], dependencies=[Depends(json_only)])


class NewLimits(BaseModel):
    """All limits of the deployment: what is left out is not limited any more."""

    model_config = ConfigDict(extra="forbid", strict=True)
    limits: dict[str, Any]


class LimitUseShape(Shape):
    """A limit and what machines hold of it; of `max_hourly_spend_usd` both in micro-USD per hour.

    `project`: whose it is; null for the deployment's. `field`: as `gpus.V100`. `excess`: where it
    is exceeded, a sentence that says so.
    """

    project: str | None
    field: str
    most: int
    used: int
    excess: str | None


class LimitUsePage(Shape):
    """Those of the deployment first. `next` is always null."""

    items: list[LimitUseShape]
    next: None


class DeploymentLimitsShape(Shape):
    """`limits`: as they were set, without what is not limited. `changed_by`: an actor, as in a
    job's events.
    """

    limits: dict[str, Any]
    changed_at: datetime | None
    changed_by: str | None
    items: list[LimitUseShape]


@router.get(
    "/projects/{project}/limits", response_model=None, responses={200: {"model": LimitUsePage}}
)
async def project_limits(request: Request, caller: Reader, project: str) -> Response:
    """The limits that launches of the project are under, the deployment's too, and their use."""
    parts = parts_of(request)
    inside = await parts.keys.in_project(caller, project)
    return page(_items(await to_thread.run_sync(_read, parts, inside)), None)


@router.get("/limits", response_model=None, responses={200: {"model": DeploymentLimitsShape}})
def limits(request: Request, caller: DeploymentReader) -> Response:
    """The limits of all projects together, and their use."""
    with parts_of(request).runtime.begin() as uow:
        return as_json(_document(uow.launch_gate.deployment_limits(), deployment_uses(uow)))


@router.put("/limits", response_model=None, responses={200: {"model": DeploymentLimitsShape}})
async def put_limits(
    request: Request, caller: DeploymentAdmin, body: Annotated[NewLimits, Body()]
) -> Response:
    """Replace the limits of all projects together. Nothing that runs is stopped: `excess` says
    which of them are exceeded now.
    """
    wanted = await to_thread.run_sync(parse_limits, body.limits, limiter=EVALUATORS)
    return await to_thread.run_sync(_set, parts_of(request), caller, wanted)


def _read(parts: ApiParts, caller: Principal) -> tuple[LimitUse, ...]:
    with parts.runtime.begin() as uow:
        return limit_uses(uow, caller.project_id)


def _set(parts: ApiParts, caller: Principal, wanted: LaunchLimits) -> Response:
    with parts.runtime.begin() as uow:
        changed = limit_deployment(uow, parts.runtime.entropy, caller, wanted)
        return as_json(_document(changed, deployment_uses(uow)))


def _document(limits: DeploymentLimits, uses: Sequence[LimitUse]) -> dict[str, Any]:
    return {
        "limits": limits.document,
        "changed_at": limits.changed_at,
        "changed_by": limits.changed_by,
        "items": _items(uses),
    }


def _items(uses: Sequence[LimitUse]) -> list[dict[str, Any]]:
    return [
        {
            "project": one.project,
            "field": one.field,
            "most": one.most,
            "used": one.used,
            "excess": one.excess,
        }
        for one in uses
    ]
