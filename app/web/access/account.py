"""What a visitor has: sessions, keys of its own, and the project that its pages show.

Not here: making keys, which the command line does, or members of a project.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final
from uuid import UUID

from fastapi import APIRouter, Form, Request
from starlette.responses import Response

from app.domain.access.principal import Principal
from app.domain.deployment.credentials import digest
from app.domain.units.errors import NotFound
from app.orchestration.access.manage_keys import own_keys, revoke_key
from app.orchestration.access.manage_projects import not_opened
from app.storage.access.key_repository import KeyRow
from app.web.page_frame import PageRoute, SignedIn, check_form, parts_of, redirect, render
from app.web.session import HOME, Visitor

router = APIRouter(route_class=PageRoute, include_in_schema=False)

_LISTED_MAX: Final = 200
_PATH: Final = "/account"
Token = Annotated[str, Form(max_length=200)]


@router.get(_PATH)
def show(request: Request, visitor: SignedIn) -> Response:
    """Sessions, keys and projects."""
    parts, owner = parts_of(request), _owner(visitor)
    now = parts.runtime.clock.now()
    projects, keys = [], []
    with parts.runtime.begin() as uow:
        if owner.person is not None:
            mine = uow.people.projects_of(owner.person.id)
            projects = [one for one in mine if owner.covers([one[0]])]
            names = {project_id: name for project_id, name, _ in mine}
            found = uow.keys.keys(own_keys(owner), now, _LISTED_MAX)
            keys = [
                (row, opened_by(owner, row, names))
                for row in found
                if row.revoked_at is None and (row.expires_at is None or row.expires_at > now)
            ]
    sessions = parts.kept_sessions.of_owner(owner, now, _LISTED_MAX)
    return render(
        request, "account.html", visitor, now=now, sessions=sessions, keys=keys,
        projects=projects, here=digest(visitor.session or ""),
    )  # fmt: skip


@router.post("/account/sessions/{session}/end")
def end_session(
    request: Request, visitor: SignedIn, session: str, form_token: Token = ""
) -> Response:
    """Sign another browser out, or this one."""
    check_form(request, visitor, form_token)
    parts = parts_of(request)
    now, audit_id = parts.runtime.clock.now(), parts.runtime.entropy.new_id()
    parts.kept_sessions.end_of_owner(_owner(visitor), session, now, audit_id)
    return redirect(_PATH)


@router.post("/account/keys/{key}/revoke")
def revoke(request: Request, visitor: SignedIn, key: str, form_token: Token = "") -> Response:
    """End one of the person's keys, and sign out its browsers."""
    check_form(request, visitor, form_token)
    owner, runtime = _owner(visitor), parts_of(request).runtime
    with runtime.begin() as uow:
        revoke_key(uow, runtime.entropy, owner, own_keys(owner), key)
    return redirect(_PATH)


@router.post("/account/project")
def choose_project(
    request: Request,
    visitor: SignedIn,
    project: Annotated[str, Form(max_length=80)],
    form_token: Token = "",
) -> Response:
    """Let this session's pages show another project of the person's."""
    check_form(request, visitor, form_token)
    parts, owner = parts_of(request), _owner(visitor)
    with parts.runtime.begin() as uow:
        person = owner.person
        mine = [] if person is None else uow.people.projects_of(person.id)
    chosen = next((one for one, name, _ in mine if name == project and owner.covers([one])), None)
    if chosen is None:
        raise NotFound(not_opened(owner, project))
    parts.kept_sessions.show_project(digest(visitor.session or ""), chosen)
    return redirect(HOME)


def opened_by(owner: Principal, row: KeyRow, mine: Mapping[UUID, str]) -> str:
    """What a key opens that names projects, as far as the owner's session does; "" for all.

    mine: names of the projects that the person is a member of, by id.
    """
    if row.project_ids is None:
        return ""
    named = [one for one in mine if one in row.project_ids]
    names = ", ".join(mine[one] for one in named if owner.covers([one]))
    if owner.covers(named):
        return f"opens only {names}" if names else "opens none of your projects"
    # A limited session does not name what it does not open, and so must not say that it is all.
    others = "projects that this browser does not"
    return f"opens {names}, and {others}" if names else f"opens only {others}"


def _owner(visitor: Visitor) -> Principal:
    assert visitor.owner is not None
    return visitor.owner
