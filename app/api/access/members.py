"""Members of a project: people and service keys with their roles; and the people of a deployment,
with their keys.

Not here: how one becomes a member (`invitations`), or the rules (`app.orchestration.access`).
"""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Body, Depends, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from app.api.access.access_shapes import KeyPage, KeyShape
from app.api.access.key_documents import key_documents
from app.api.access.keys import KEYS_MAX
from app.api.access.member_shapes import MemberPage, PersonPage, PersonShape, ProjectMemberShape
from app.api.jobs.job_command_routes import json_only
from app.api.serving.api_parts import parts_of
from app.api.serving.auth import DeploymentAdmin, DeploymentReader, MemberManager
from app.api.serving.json_answers import as_json, page
from app.api.serving.shapes import fields_of
from app.domain.access.person_rules import folded
from app.domain.access.principal import Principal
from app.domain.access.roles import Role
from app.domain.units.errors import InvalidValue
from app.orchestration.access.manage_members import (
    anonymise_person,
    keys_of_person,
    remove_member,
    revoke_key_of_person,
    set_disabled,
    set_member_role,
)
from app.storage.access.people_repository import MemberKind

router = APIRouter(prefix="/api/v1", tags=["members"], dependencies=[Depends(json_only)])

_LISTED_MAX: Final = 1_000
Limit = Annotated[int, Query(ge=1, le=_LISTED_MAX)]
After = Annotated[str | None, Query(max_length=400, description="`next` of the part before")]


class NewRole(BaseModel):
    """Another role for a member."""

    model_config = ConfigDict(extra="forbid", strict=True)
    role: Annotated[Role, Field(strict=False)]


@router.get("/members", response_model=None, responses={200: {"model": MemberPage}})
def members(
    request: Request, caller: MemberManager, limit: Limit = 200, after: After = None
) -> Response:
    """People and service keys of the project by name, each with its role there."""
    with parts_of(request).runtime.begin() as uow:
        found = uow.people.members(caller.project_id, uow.now, limit + 1, _continued(after))
    items = [fields_of(ProjectMemberShape, row) for row in found[:limit]]
    return page(items, found[limit - 1].cursor if len(found) > limit else None)


@router.post(
    "/members/{member:path}/role",
    response_model=None,
    responses={200: {"model": ProjectMemberShape}},
)
def change_role(
    request: Request, caller: MemberManager, member: str, body: Annotated[NewRole, Body()]
) -> Response:
    """Give a person or a service key another role in the project; `member` is its name or id.

    It holds within two seconds for all its keys and browsers.
    """
    runtime = parts_of(request).runtime
    with runtime.begin() as uow:
        changed = set_member_role(uow, runtime.entropy, caller, member, body.role)
    return as_json(fields_of(ProjectMemberShape, changed))


@router.post(
    "/members/{member:path}/remove",
    response_model=None,
    responses={200: {"model": ProjectMemberShape}},
)
def remove(request: Request, caller: MemberManager, member: str) -> Response:
    """End a person's membership, or revoke a service key, within two seconds. Its jobs go on. A key
    of another project, `home/name`, continues to work in its others.
    """
    runtime = parts_of(request).runtime
    with runtime.begin() as uow:
        removed = remove_member(uow, runtime.entropy, caller, member)
    return as_json(fields_of(ProjectMemberShape, removed))


@router.get("/people", response_model=None, responses={200: {"model": PersonPage}})
def people(
    request: Request, caller: DeploymentReader, limit: Limit = 200, after: After = None
) -> Response:
    """All people of the deployment by name, whichever projects they are members of."""
    with parts_of(request).runtime.begin() as uow:
        found = uow.people.people(limit + 1, after)
    items = [fields_of(PersonShape, row) for row in found[:limit]]
    return page(items, folded(found[limit - 1].name) if len(found) > limit else None)


@router.post(
    "/people/{person}/disable", response_model=None, responses={200: {"model": PersonShape}}
)
def disable(request: Request, caller: DeploymentAdmin, person: str) -> Response:
    """Disable a person: its keys and sessions do nothing within two seconds, in any project."""
    return _set_disabled(request, caller, person, disabled=True)


@router.post(
    "/people/{person}/enable", response_model=None, responses={200: {"model": PersonShape}}
)
def enable(request: Request, caller: DeploymentAdmin, person: str) -> Response:
    """Enable a person: its keys and sessions work again. Keys that were revoked stay so."""
    return _set_disabled(request, caller, person, disabled=False)


@router.post(
    "/people/{person}/anonymise", response_model=None, responses={200: {"model": PersonShape}}
)
def anonymise(request: Request, caller: DeploymentAdmin, person: str) -> Response:
    """Remove a person's name and address for good, and end its keys, browsers, accounts and
    memberships, within two seconds. What it has done is shown as that of someone removed.
    """
    runtime = parts_of(request).runtime
    with runtime.begin() as uow:
        changed = anonymise_person(uow, runtime.entropy, caller, person)
    return as_json(fields_of(PersonShape, changed))


@router.get("/people/{person}/keys", response_model=None, responses={200: {"model": KeyPage}})
def keys(request: Request, caller: DeploymentAdmin, person: str) -> Response:
    """A person's own keys: those that are good, then the others; each the newest first."""
    with parts_of(request).runtime.begin() as uow:
        items = key_documents(uow, caller, keys_of_person(uow, caller, person, KEYS_MAX))
    return page(items, None)


@router.post(
    "/people/{person}/keys/{key}/revoke",
    response_model=None,
    responses={200: {"model": KeyShape}},
)
def revoke_key(request: Request, caller: DeploymentAdmin, person: str, key: str) -> Response:
    """End one key of the person within two seconds, as one that leaked while its owner is away, and
    sign out its browsers. The person's other keys and its jobs go on.
    """
    runtime = parts_of(request).runtime
    with runtime.begin() as uow:
        row = revoke_key_of_person(uow, runtime.entropy, caller, person, key)
        [answer] = key_documents(uow, caller, [row])
    return as_json(answer)


def _set_disabled(request: Request, caller: Principal, person: str, *, disabled: bool) -> Response:
    runtime = parts_of(request).runtime
    with runtime.begin() as uow:
        changed = set_disabled(uow, runtime.entropy, caller, person, disabled=disabled)
    return as_json(fields_of(PersonShape, changed))


def _continued(after: str | None) -> tuple[str, str] | None:
    """Kind and place of the member before. Raises InvalidValue."""
    if after is None:
        return None
    kind, _, place = after.partition("/")
    if kind not in set(MemberKind) or not place:
        raise InvalidValue("after: send `next` of the part before as it was", "after")
    return kind, place
