"""The page of what people did: a search in its address, rows, and what was refused.

Lives here: the route, and what its template shows. Not here: the rows (`app.storage.audit`), or
the same over REST (`app.api.audit`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Annotated, Final
from urllib.parse import urlencode
from uuid import UUID

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from app.domain.access.may import DEPLOYMENT, AccessDecision, Resource, may, require
from app.domain.access.principal import Principal
from app.domain.access.roles import Action
from app.domain.audit.audit_action import AuditAction, read_actions
from app.domain.projects.project_rules import PROJECTS_MAX
from app.domain.units.cursors import cursor_of, read_cursor
from app.domain.units.errors import InvalidValue
from app.domain.units.instants import usual_day
from app.orchestration.access.manage_projects import audited_project
from app.storage.audit.audit_reports import WHO_MAX, AuditFilter, AuditRow, RefusedRow
from app.web.page_frame import PageParts, PageRoute, SignedIn, parts_of, render

router = APIRouter(route_class=PageRoute, include_in_schema=False)

ROWS_MAX: Final = 50
_REFUSED_SHOWN: Final = 10
SUBJECTS: Final = tuple(dict.fromkeys(one.partition(".")[0] for one in AuditAction))
"""What actions are done to: the choices of the filter, before each action."""


@dataclass(frozen=True)
class AuditQuery:
    """The search as the address has it; "" is no condition."""

    who: str = ""
    action: str = ""
    project: str = ""
    day: str = ""
    before: str = ""

    def address(self, before: str = "") -> str:
        """The address of this search, from the newest row or from a cursor on."""
        fields = {name: value for name, value in vars(self).items() if value and name != "before"}
        fields |= {"before": before} if before else {}
        return f"/audit?{urlencode(fields)}" if fields else "/audit"

    @property
    def is_narrow(self) -> bool:
        """Whether some condition holds rows back."""
        return any((self.who, self.action, self.project, self.day))


@dataclass(frozen=True)
class AuditView:
    """What the page shows. projects: to choose from, for those who see all; older: an address."""

    query: AuditQuery
    rows: list[AuditRow]
    older: str | None
    sees_all: bool
    projects: list[str]
    refused: list[RefusedRow]
    actions: tuple[str, ...]


@router.get("/audit")
def audit(
    request: Request,
    visitor: SignedIn,
    who: Annotated[str, Query(max_length=WHO_MAX)] = "",
    action: Annotated[str, Query(max_length=63)] = "",
    project: Annotated[str, Query(max_length=63)] = "",
    day: Annotated[str, Query(max_length=10)] = "",
    before: Annotated[str, Query(max_length=80)] = "",
) -> Response:
    """What people did, the newest first, by what the address asks for."""
    assert visitor.owner is not None
    query = AuditQuery(who.strip(), action, project, day, before)
    view = _view(parts_of(request), visitor.owner, query)
    return render(request, "audit.html", visitor, view=view, who_max=WHO_MAX)


def _view(parts: PageParts, owner: Principal, query: AuditQuery) -> AuditView:
    sees_all = may(owner, Action.READ_DEPLOYMENT, DEPLOYMENT) is AccessDecision.ALLOWED
    everything = sees_all and not query.project
    wanted = AuditFilter(
        None if everything else _project_id(parts, owner, query.project),
        ROWS_MAX + 1,
        who=query.who or None,
        actions=read_actions(query.action),
        day=_day(query.day),
        before=read_cursor(query.before) if query.before else None,
    )
    rows = parts.audit.rows(wanted)
    older = None
    if len(rows) > ROWS_MAX:
        last = rows[ROWS_MAX - 1].entry
        older = query.address(cursor_of(last.at, last.id))
    refused = parts.audit.refusals(wanted.day, _REFUSED_SHOWN) if everything else []
    projects = _projects(parts) if sees_all else []
    actions = (*SUBJECTS, *(one.value for one in AuditAction))
    return AuditView(query, rows[:ROWS_MAX], older, sees_all, projects, refused, actions)


def _project_id(parts: PageParts, owner: Principal, named: str) -> UUID:
    """Whose rows are shown. Raises Forbidden and NotFound."""
    if not named:
        require(owner, Action.READ_AUDIT, Resource(owner.project_id))
        return owner.project_id
    with parts.runtime.begin() as uow:
        return audited_project(uow, owner, named)


def _projects(parts: PageParts) -> list[str]:
    with parts.runtime.begin() as uow:
        return [row.name for row in uow.keys.projects(uow.now, PROJECTS_MAX)]


def _day(written: str) -> date | None:
    if not written:
        return None
    try:
        return usual_day(date.fromisoformat(written))
    except ValueError as error:
        raise InvalidValue("day: write a day, as in 2026-01-31", "day") from error
