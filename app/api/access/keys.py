"""Service keys of a project: list, make, rotate, revoke; and whose the caller's own key is.

Not here: a person's own keys (`own_keys`), or the rules (`app.orchestration.access.manage_keys`).
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Body, Depends, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from app.api.access.access_shapes import IssuedKeyShape, KeyPage, KeyShape, WhoShape
from app.api.access.key_documents import key_documents, names_of_opened
from app.api.jobs.job_command_routes import json_only
from app.api.serving.api_parts import parts_of
from app.api.serving.auth import KeyManager, Reader
from app.api.serving.json_answers import as_json, page
from app.domain.access.key_rules import PROJECTS_OF_KEY_MAX
from app.domain.access.principal import Principal
from app.domain.access.roles import Role
from app.domain.units.durations import parse_duration
from app.domain.units.errors import InvalidValue
from app.orchestration.access.manage_keys import (
    IssuedKey,
    create_key,
    revoke_key,
    rotate_key,
    service_keys,
)
from app.storage.unit_of_work import UnitOfWork

router = APIRouter(prefix="/api/v1", tags=["keys"], dependencies=[Depends(json_only)])

KEYS_MAX: Final = 1_000
_OVERLAP: Final = "1h"
NamesOfProjects = Annotated[
    list[Annotated[str, Field(max_length=200)]],
    Field(min_length=1, max_length=PROJECTS_OF_KEY_MAX),
]


class NewKey(BaseModel):
    """`expires_in`: as `30d` or `12h`; null, or left out, is a key without an end. `projects`: it
    works in all of these, with the same role, and belongs to the request's, if that is among them,
    else to the first; null, or left out, is the request's alone.
    """

    model_config = ConfigDict(extra="forbid", strict=True)
    name: Annotated[str, Field(max_length=200)]
    role: Annotated[Role, Field(strict=False)] = Role.SUBMITTER
    expires_in: Annotated[str, Field(max_length=40)] | None = None
    projects: NamesOfProjects | None = None


class Rotation(BaseModel):
    """`overlap`: for how long the secret of before is good, too, as `1h`; `0s` ends it at once."""

    model_config = ConfigDict(extra="forbid", strict=True)
    overlap: Annotated[str, Field(max_length=40)] = _OVERLAP


@router.get("/me", response_model=None, responses={200: {"model": WhoShape}})
def me(request: Request, caller: Reader) -> Response:
    """The key of this request, whose it is, its role, the projects that it names, and the project
    that the request is in.
    """
    projects: list[str] | None = None
    if caller.projects is not None:
        with parts_of(request).runtime.begin() as uow:
            projects = list(names_of_opened(uow, caller, caller.projects).values())
    return as_json(
        {
            "key": caller.key_name,
            "key_id": caller.key_id,
            "person": None if caller.person is None else caller.person.name,
            "role": caller.role,
            "project": caller.project_name,
            "projects": projects,
        }
    )


@router.get("/keys", response_model=None, responses={200: {"model": KeyPage}})
def keys(request: Request, caller: KeyManager) -> Response:
    """The project's service keys, and those of others that work in it: those that are good, then
    the others; each the newest first.
    """
    with parts_of(request).runtime.begin() as uow:
        found = uow.keys.keys(service_keys(caller), uow.now, KEYS_MAX)
        items = key_documents(uow, caller, found)
    return page(items, None)


@router.post(
    "/keys", status_code=201, response_model=None, responses={201: {"model": IssuedKeyShape}}
)
def create(request: Request, caller: KeyManager, body: Annotated[NewKey, Body()]) -> Response:
    """Make a service key of the project. Its secret is in this answer, and in no other.

    A maintainer makes viewers, submitters and maintainers; an admin any role. With `projects`, you
    must be that in each, and it is no auditor's or admin's, who work in every project already.
    """
    runtime = parts_of(request).runtime
    life = None if body.expires_in is None else seconds_in(body.expires_in, "expires_in")
    with runtime.begin() as uow:
        issued = create_key(
            uow, runtime.entropy, caller, body.name, body.role, life, projects=body.projects
        )
        answer = _issued(uow, issued, caller)
    return as_json(answer, 201)


@router.post("/keys/{key}/rotate", response_model=None, responses={200: {"model": IssuedKeyShape}})
def rotate(
    request: Request, caller: KeyManager, key: str, body: Annotated[Rotation | None, Body()] = None
) -> Response:
    """Give the key another secret. The one of before stays good for `overlap`; its browsers are
    signed out at once. Revoke a key that leaked instead. To rotate one with `projects`, you must be
    allowed to make it in each of them.
    """
    runtime = parts_of(request).runtime
    overlap = seconds_in((body or Rotation()).overlap, "overlap")
    with runtime.begin() as uow:
        issued = rotate_key(uow, runtime.entropy, caller, service_keys(caller), key, overlap)
        answer = _issued(uow, issued, caller)
    return as_json(answer)


@router.post("/keys/{key}/revoke", response_model=None, responses={200: {"model": KeyShape}})
def revoke(request: Request, caller: KeyManager, key: str) -> Response:
    """End the key within two seconds, and sign out its browsers. Its jobs go on."""
    runtime = parts_of(request).runtime
    with runtime.begin() as uow:
        row = revoke_key(uow, runtime.entropy, caller, service_keys(caller), key)
        [answer] = key_documents(uow, caller, [row])
    return as_json(answer)


def seconds_in(written: str, field: str) -> int:
    """The seconds of a duration as people write it; raises InvalidValue that names the field."""
    try:
        return parse_duration(written)
    except InvalidValue as error:
        raise InvalidValue(f"{field}: {error.message}", field) from error


def _issued(uow: UnitOfWork, issued: IssuedKey, caller: Principal) -> dict[str, Any]:
    [document] = key_documents(uow, caller, [issued.row])
    return {**document, "key": issued.secret}
