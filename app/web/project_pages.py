"""The pages of projects: the list of those that a visitor's key opens, and one with its rules, its
keys and the names of its secrets.

Not here: changing anything, which is done with the command line or over REST.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from app.domain.access.may import DEPLOYMENT, AccessDecision, Resource, may
from app.domain.access.principal import Principal
from app.domain.access.roles import Action
from app.domain.launch_limits.freeze import Freeze
from app.domain.launch_limits.limit_use import LimitUse
from app.domain.launch_limits.monthly_budget import DEPLOYMENT_PAYER
from app.domain.units.errors import NotFound
from app.domain.wording.rule_words import rule_lines
from app.orchestration.access.manage_keys import service_keys
from app.orchestration.access.manage_projects import not_opened, opened_ids, opened_project
from app.orchestration.money.set_budget import BudgetStanding, budget_standing
from app.orchestration.placement.read_launch_room import limit_uses
from app.orchestration.secrets.manage_secrets import named_secrets
from app.storage.access.key_repository import KeyRow
from app.storage.access.rules_repository import RulesRow
from app.storage.access.secret_repository import SecretRow
from app.storage.reports.project_report import ProjectSummary
from app.web.page_frame import PageParts, PageRoute, SignedIn, parts_of, render
from app.web.session import Visitor

router = APIRouter(route_class=PageRoute, include_in_schema=False)

_KEYS_MAX: Final = 200


@dataclass(frozen=True)
class ProjectView:
    """One project. freezes, limits, budget, shared (the deployment's budget): what its machines are
    under. sees_deployment: whether the visitor may read what all projects spend. keys: None for a
    visitor who may not manage them; secrets: for one who may not name them.
    """

    summary: ProjectSummary
    freezes: tuple[Freeze, ...]
    limits: tuple[LimitUse, ...]
    budget: BudgetStanding | None
    shared: BudgetStanding | None
    sees_deployment: bool
    month: date
    rules: RulesRow
    lines: tuple[tuple[str, str], ...]
    keys: list[KeyRow] | None
    secrets: list[SecretRow] | None
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
        freezes = uow.launch_gate.of_project(project_id).freezes
        limits = limit_uses(uow, project_id)
        budget = budget_standing(uow, project_id, name)
        shared = budget_standing(uow, DEPLOYMENT_PAYER)
        keys = secrets = None
        if _may(inside, Action.MANAGE_KEYS):
            keys = uow.keys.keys(service_keys(inside), uow.now, _KEYS_MAX)
        if _may(inside, Action.NAME_SECRETS):
            secrets = named_secrets(uow, inside)
    [summary] = parts.projects.projects(month, [project_id])
    lines = tuple(rule_lines(rules.document))
    mine = project_id == owner.project_id
    sees = may(inside, Action.READ_DEPLOYMENT, DEPLOYMENT) is AccessDecision.ALLOWED
    return ProjectView(
        summary, freezes, limits, budget, shared, sees, month, rules, lines, keys, secrets, mine,
        now,
    )  # fmt: skip


def _may(principal: Principal, action: Action) -> bool:
    return may(principal, action, Resource(principal.project_id)) is AccessDecision.ALLOWED


def _owner(visitor: Visitor) -> Principal:
    assert visitor.owner is not None
    return visitor.owner


def _month(parts: PageParts) -> date:
    """The first day of this month, UTC."""
    return parts.runtime.clock.now().date().replace(day=1)
