"""Invitations to a project: list, make, take back. A page accepts them (`app.web.access`).

Not here: the rules (`app.orchestration.access.manage_invitations`).
"""

from __future__ import annotations

from typing import Annotated, Any, Final
from uuid import UUID

from fastapi import APIRouter, Body, Depends, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from app.api.access.member_shapes import (
    InvitationPage,
    InvitationShape,
    IssuedInvitationShape,
)
from app.api.jobs.job_command_routes import json_only
from app.api.serving.api_parts import parts_of
from app.api.serving.auth import MemberManager
from app.api.serving.json_answers import as_json, page
from app.api.serving.shapes import fields_of
from app.domain.access.person_rules import EMAIL_MAX, NAME_MAX, invitation_path
from app.domain.access.principal import Principal
from app.domain.access.roles import Role
from app.orchestration.access.manage_invitations import invite, invite_again, revoke_invitation
from app.storage.access.invitation_repository import InvitationRow

router = APIRouter(prefix="/api/v1", tags=["members"], dependencies=[Depends(json_only)])

_LISTED_MAX: Final = 1_000


class NewInvitation(BaseModel):
    """`email`: to tell invitations apart; nothing is sent to it. `person`: the name or id of a
    person whose keys are lost: the link gives it another one, and `role` only if it is a member of
    no project any more. Admins alone make it.
    """

    model_config = ConfigDict(extra="forbid", strict=True)
    role: Annotated[Role, Field(strict=False)] = Role.SUBMITTER
    email: Annotated[str, Field(max_length=EMAIL_MAX)] | None = None
    person: Annotated[str, Field(max_length=NAME_MAX)] | None = None


@router.get("/invitations", response_model=None, responses={200: {"model": InvitationPage}})
def invitations(
    request: Request,
    caller: MemberManager,
    limit: Annotated[int, Query(ge=1, le=_LISTED_MAX)] = 200,
    after: Annotated[UUID | None, Query(description="`next` of the part before")] = None,
) -> Response:
    """The project's invitations that can be accepted, the newest first."""
    with parts_of(request).runtime.begin() as uow:
        found = uow.invitations.open(caller.project_id, uow.now, limit + 1, after)
    more = len(found) > limit
    items = [_invitation(row, caller) for row in found[:limit]]
    return page(items, str(found[limit - 1].id) if more else None)


@router.post(
    "/invitations",
    status_code=201,
    response_model=None,
    responses={201: {"model": IssuedInvitationShape}},
)
def create(
    request: Request, caller: MemberManager, body: Annotated[NewInvitation, Body()]
) -> Response:
    """Invite one person to the project, for 72 hours. The link is in this answer, and in no other.

    A maintainer invites viewers, submitters and maintainers; an admin any role.
    """
    runtime = parts_of(request).runtime
    with runtime.begin() as uow:
        if body.person is not None:
            issued = invite_again(uow, runtime.entropy, caller, body.person, body.role)
        else:
            issued = invite(uow, runtime.entropy, caller, body.role, body.email)
    link = invitation_path(issued.token)
    return as_json({**_invitation(issued.row, caller), "link": link}, 201)


@router.post(
    "/invitations/{invitation}/revoke",
    response_model=None,
    responses={200: {"model": InvitationShape}},
)
def revoke(request: Request, caller: MemberManager, invitation: UUID) -> Response:
    """Let nobody accept the invitation any more."""
    runtime = parts_of(request).runtime
    with runtime.begin() as uow:
        row = revoke_invitation(uow, runtime.entropy, caller, invitation)
    return as_json(_invitation(row, caller))


def _invitation(row: InvitationRow, caller: Principal) -> dict[str, Any]:
    return fields_of(InvitationShape, row, project=caller.project_name)
