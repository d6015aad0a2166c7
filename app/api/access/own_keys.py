"""A person's own keys: list, make, rotate, revoke. They work in every project of the person's, or
in those that they are limited to.

Not here: service keys (`keys`), or the rules (`app.orchestration.access.manage_keys`).
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from app.api.access.access_shapes import IssuedKeyShape, KeyPage, KeyShape
from app.api.access.key_documents import key_documents
from app.api.access.keys import KEYS_MAX, NamesOfProjects, Rotation, seconds_in
from app.api.jobs.job_command_routes import json_only
from app.api.serving.api_parts import parts_of
from app.api.serving.auth import Owner
from app.api.serving.json_answers import as_json, page
from app.domain.access.principal import Principal
from app.domain.access.roles import Role, role_of_person
from app.orchestration.access.manage_keys import (
    create_own_key,
    own_keys,
    revoke_key,
    rotate_key,
)
from app.storage.access.key_repository import KeyRow
from app.storage.unit_of_work import UnitOfWork

router = APIRouter(prefix="/api/v1/me", tags=["keys"], dependencies=[Depends(json_only)])


class NewOwnKey(BaseModel):
    """`role`: the most that the key may do; null, or left out, is all that you may, now and later.
    `expires_in`: as `30d` or `12h`; null, or left out, is a key without an end. `projects`: the
    only ones that it opens, of those that you are a member of; null, or left out, is all that the
    key of this request opens. Where a request names none, it works in this request's, if that is
    among them, else in the first.
    """

    model_config = ConfigDict(extra="forbid", strict=True)
    name: Annotated[str, Field(max_length=200)]
    role: Annotated[Role, Field(strict=False)] | None = None
    expires_in: Annotated[str, Field(max_length=40)] | None = None
    projects: NamesOfProjects | None = None


@router.get("/keys", response_model=None, responses={200: {"model": KeyPage}})
def keys(request: Request, caller: Owner) -> Response:
    """Your own keys: those that are good, then the others; each the newest first."""
    with parts_of(request).runtime.begin() as uow:
        items = _own_keys(uow, caller, uow.keys.keys(own_keys(caller), uow.now, KEYS_MAX))
    return page(items, None)


@router.post(
    "/keys", status_code=201, response_model=None, responses={201: {"model": IssuedKeyShape}}
)
def create(request: Request, caller: Owner, body: Annotated[NewOwnKey, Body()]) -> Response:
    """Make a key of your own. Its secret is in this answer, and in no other."""
    runtime = parts_of(request).runtime
    life = None if body.expires_in is None else seconds_in(body.expires_in, "expires_in")
    with runtime.begin() as uow:
        issued = create_own_key(
            uow, runtime.entropy, caller, body.name, body.role, life, body.projects
        )
        [document] = _own_keys(uow, caller, [issued.row])
    return as_json({**document, "key": issued.secret}, 201)


@router.post("/keys/{key}/rotate", response_model=None, responses={200: {"model": IssuedKeyShape}})
def rotate(
    request: Request, caller: Owner, key: str, body: Annotated[Rotation | None, Body()] = None
) -> Response:
    """Give one of your keys another secret. The one of before stays good for `overlap`; its
    browsers are signed out at once. Revoke a key that leaked instead.
    """
    runtime = parts_of(request).runtime
    overlap = seconds_in((body or Rotation()).overlap, "overlap")
    with runtime.begin() as uow:
        issued = rotate_key(uow, runtime.entropy, caller, own_keys(caller), key, overlap)
        [document] = _own_keys(uow, caller, [issued.row])
    return as_json({**document, "key": issued.secret})


@router.post("/keys/{key}/revoke", response_model=None, responses={200: {"model": KeyShape}})
def revoke(request: Request, caller: Owner, key: str) -> Response:
    """End one of your keys within two seconds, and sign out its browsers. Its jobs go on."""
    runtime = parts_of(request).runtime
    with runtime.begin() as uow:
        row = revoke_key(uow, runtime.entropy, caller, own_keys(caller), key)
        [answer] = _own_keys(uow, caller, [row])
    return as_json(answer)


def _own_keys(uow: UnitOfWork, caller: Principal, rows: list[KeyRow]) -> list[dict[str, Any]]:
    """A person's keys as their owner sees them, with their roles in the project of the request."""
    assert caller.person is not None
    here, elsewhere = uow.people.roles_of(caller.person.id), caller.person.elsewhere
    member_role = here.get(caller.project_id)
    documents = key_documents(uow, caller, rows)
    for row, document in zip(rows, documents, strict=True):
        if row.project_ids is None or caller.project_id in row.project_ids:
            document["role"] = role_of_person(member_role, elsewhere, row.role) or row.role
    return documents
