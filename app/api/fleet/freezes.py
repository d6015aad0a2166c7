"""Freezes of launches: list them, freeze, thaw.

Not here: who may do it and what it stops (`app.orchestration.deployment.freeze_launches`).
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from anyio import to_thread
from fastapi import APIRouter, Body, Depends, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from app.api.jobs.job_command_routes import json_only
from app.api.serving.api_parts import ApiParts, parts_of
from app.api.serving.auth import DeploymentAdmin, Reader, RuleManager
from app.api.serving.json_answers import as_json, page
from app.api.serving.shapes import Shape
from app.domain.access.principal import Principal
from app.domain.launch_limits.freeze import (
    EVERYTHING,
    REASON_MAX,
    Freeze,
    FreezePlace,
    FreezeScope,
)
from app.orchestration.access.manage_projects import opened_ids
from app.orchestration.deployment.freeze_launches import freeze_launches, thaw_launches

router = APIRouter(prefix="/api/v1", tags=["freezes"], dependencies=[Depends(json_only)])


class FreezeReason(BaseModel):
    """`reason`: one line for the people whose jobs wait."""

    model_config = ConfigDict(extra="forbid", strict=True)
    reason: Annotated[str, Field(max_length=REASON_MAX)] = ""


class CloudFreeze(FreezeReason):
    """`cloud`: a provider's name, as `aws`; null freezes everything."""

    cloud: str | None


class CloudThaw(BaseModel):
    """`cloud`: as it was frozen."""

    model_config = ConfigDict(extra="forbid", strict=True)
    cloud: str | None


class FreezeShape(Shape):
    """A freeze. `cloud`, `project`: what is frozen; both null for everything. `frozen_by`: an
    actor, as in a job's events. `sentence`: as its jobs say it.
    """

    scope: FreezeScope
    cloud: str | None
    project: str | None
    frozen_at: datetime
    frozen_by: str
    reason: str
    sentence: str


class FreezePage(Shape):
    """Freezes of everything, of clouds, and of the projects that the key opens."""

    items: list[FreezeShape]
    next: None


class ThawedShape(Shape):
    """`thawed`: the freeze that has ended; null where there was none."""

    thawed: FreezeShape | None


@router.get("/freezes", response_model=None, responses={200: {"model": FreezePage}})
def freezes(request: Request, caller: Reader) -> Response:
    """What is frozen now."""
    with parts_of(request).runtime.begin() as uow:
        opened = opened_ids(uow, caller)
        found = uow.launch_gate.freezes()
    places = [one for one in found if _is_shown(one.place, opened)]
    return page([_document(one) for one in places], None)


@router.post("/freezes", response_model=None, responses={200: {"model": FreezeShape}})
def freeze(
    request: Request, caller: DeploymentAdmin, body: Annotated[CloudFreeze, Body()]
) -> Response:
    """Request no machines at a cloud, or none at all, in any project.

    Machines that run stay, and launches that were requested before go on. What is frozen already
    stays as it is.
    """
    runtime = parts_of(request).runtime
    with runtime.begin() as uow:
        made = freeze_launches(uow, runtime.entropy, caller, _place(body.cloud), body.reason)
    return as_json(_document(made))


@router.post("/freezes/thaw", response_model=None, responses={200: {"model": ThawedShape}})
def thaw(request: Request, caller: DeploymentAdmin, body: Annotated[CloudThaw, Body()]) -> Response:
    """Let machines be requested again. Jobs that wait look for them within half a minute."""
    return _thaw(parts_of(request), caller, _place(body.cloud))


@router.post(
    "/projects/{project}/freeze", response_model=None, responses={200: {"model": FreezeShape}}
)
async def freeze_project(
    request: Request, caller: RuleManager, project: str, body: Annotated[FreezeReason, Body()]
) -> Response:
    """Request no machines for the project, as `POST /freezes` does for a cloud."""
    parts = parts_of(request)
    inside = await parts.keys.in_project(caller, project)
    made = await to_thread.run_sync(_freeze_project, parts, inside, body.reason)
    return as_json(_document(made))


@router.post(
    "/projects/{project}/thaw", response_model=None, responses={200: {"model": ThawedShape}}
)
async def thaw_project(request: Request, caller: RuleManager, project: str) -> Response:
    """Let machines be requested for the project again."""
    parts = parts_of(request)
    inside = await parts.keys.in_project(caller, project)
    return await to_thread.run_sync(_thaw, parts, inside, _of_project(inside))


def _freeze_project(parts: ApiParts, caller: Principal, reason: str) -> Freeze:
    with parts.runtime.begin() as uow:
        entropy = parts.runtime.entropy
        return freeze_launches(uow, entropy, caller, _of_project(caller), reason)


def _thaw(parts: ApiParts, caller: Principal, place: FreezePlace) -> Response:
    with parts.runtime.begin() as uow:
        found = thaw_launches(uow, parts.runtime.entropy, caller, place)
    return as_json({"thawed": None if found is None else _document(found)})


def _place(cloud: str | None) -> FreezePlace:
    return EVERYTHING if cloud is None else FreezePlace.of_cloud(cloud)


def _of_project(caller: Principal) -> FreezePlace:
    return FreezePlace(FreezeScope.PROJECT, None, caller.project_id, caller.project_name)


def _is_shown(place: FreezePlace, opened: Collection[UUID] | None) -> bool:
    return place.project_id is None or opened is None or place.project_id in opened


def _document(freeze: Freeze) -> dict[str, Any]:
    return {
        "scope": freeze.place.scope,
        "cloud": freeze.place.cloud,
        "project": freeze.place.project,
        "frozen_at": freeze.frozen_at,
        "frozen_by": str(freeze.frozen_by),
        "reason": freeze.reason,
        "sentence": freeze.headline,
    }
