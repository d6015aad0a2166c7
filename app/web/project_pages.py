"""The pages of projects: the list of those that a visitor's key opens, and one with its rules.

Not here: changing anything, which is done with the command line or over REST.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from app.domain.access.may import AccessDecision, Resource, may
from app.domain.access.principal import Principal
from app.domain.access.roles import Action
from app.domain.units.errors import NotFound
from app.domain.wording.rule_words import rule_lines
from app.orchestration.access.manage_keys import service_keys
from app.orchestration.access.manage_projects import not_opened, opened_ids, opened_project
from app.storage.access.key_repository import KeyRow
from app.storage.access.rules_repository import RulesRow
from app.storage.reports.project_report import ProjectSummary
from app.web.page_frame import PageParts, PageRoute, SignedIn, parts_of, render
from app.web.session import Visitor

router = APIRouter(route_class=PageRoute, include_in_schema=False)

_KEYS_MAX: Final = 200


@dataclass(frozen=True)
class ProjectView:
    """One project. keys: None for a visitor who may not manage them."""

    summary: ProjectSummary
    month: date
    rules: RulesRow
    lines: tuple[tuple[str, str], ...]
    keys: list[KeyRow] | None
    mine: bool
    now: datetime


@router.get("/projects")
def projects(request: Request, visitor: SignedIn) -> Response:
    """Every project that the visitor opens."""
    parts, owner = parts_of(request), _owner(visitor)
    month = _month(parts)
    with parts.runtime.begin() as uow:
        opened = opened_ids(uow, owner)
    found = parts.projects.projects(month, opened)
    return render(request, "projects.html", visitor, projects=found, month=month)


@router.get("/projects/{project}")
def project(request: Request, visitor: SignedIn, project: str) -> Response:
    """One project: what it runs and spends, its rules, and its keys for those who manage them."""
    view = _view(parts_of(request), _owner(visitor), project)
    return render(request, "project.html", visitor, view=view, now=view.now)


def _view(parts: PageParts, owner: Principal, name: str) -> ProjectView:
    month = _month(parts)
    with parts.runtime.begin() as uow:
        now = uow.now
        opened = opened_project(uow, owner, name)
        if opened is None:
            raise NotFound(not_opened(owner, name))
        project_id, inside = opened.id, opened.caller
        rules = uow.rules.of(project_id)
        manages = may(inside, Action.MANAGE_KEYS, Resource(project_id)) is AccessDecision.ALLOWED
        keys = uow.keys.keys(service_keys(inside), uow.now, _KEYS_MAX) if manages else None
    [summary] = parts.projects.projects(month, [project_id])
    lines = tuple(rule_lines(rules.document))
    return ProjectView(summary, month, rules, lines, keys, project_id == owner.project_id, now)


def _owner(visitor: Visitor) -> Principal:
    assert visitor.owner is not None
    return visitor.owner


def _month(parts: PageParts) -> date:
    """The first day of this month, UTC."""
    return parts.runtime.clock.now().date().replace(day=1)
