"""Monthly budgets of projects and of the deployment: what they are, how the month stands, and
setting them.

Not here: a job's own budget (`app.api.jobs`), or what a budget covers.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Body, Depends, Request
from pydantic import BaseModel, ConfigDict
from starlette.responses import Response

from app.api.jobs.job_command_routes import json_only
from app.api.serving.api_parts import ApiParts, parts_of
from app.api.serving.auth import DeploymentAdmin, DeploymentReader, Reader, RuleManager
from app.api.serving.json_answers import as_json, page
from app.api.serving.shapes import Shape
from app.domain.access.principal import Principal
from app.domain.billing.budget import BudgetOwner
from app.domain.launch_limits.monthly_budget import DEPLOYMENT_PAYER, AtFull, read_at_full
from app.domain.spec.job_spec_values import MIN_BUDGET_MICROUSD
from app.domain.units.errors import InvalidValue
from app.domain.units.money import parse_usd
from app.orchestration.access.manage_projects import opened_ids
from app.orchestration.money.set_budget import (
    BudgetStanding,
    budget_standing,
    remove_budget,
    set_budget,
)

router = APIRouter(prefix="/api/v1", tags=["budgets"], dependencies=[Depends(json_only)])


class NewMonthlyBudget(BaseModel):
    """`monthly_usd`: the money of a calendar month in UTC; null removes the budget. `at_100`: what
    happens once it is spent or reserved; null, or left out, keeps what it is, and is `block_new`
    of a first budget.
    """

    model_config = ConfigDict(extra="forbid", strict=True)
    monthly_usd: float | int | str | None
    at_100: str | None = None


class ThresholdShape(Shape):
    """A share of the budget that was reached this month, and when that was told."""

    percent: int
    told_at: datetime
    spent_microusd: int


class MonthlyBudgetShape(Shape):
    """A budget of a month, and how that stands. `project`: null for the deployment's.
    `spent_microusd`: booked for the usage of this month. `forecast_microusd`: of the whole month,
    if the machines of now go on to its end.
    """

    project: str | None
    monthly_microusd: int
    at_100: AtFull
    month_at: datetime
    ends_at: datetime
    spent_microusd: int
    reserved_microusd: int
    percent: int
    microusd_per_hour: int
    forecast_microusd: int
    thresholds: list[ThresholdShape]


class MonthlyBudgetPage(Shape):
    """Of the projects that the key opens and that have one, by name. `next` is always null."""

    items: list[MonthlyBudgetShape]
    next: None


class AskedBudgetShape(Shape):
    """`budget`: null where there is no budget of a month."""

    budget: MonthlyBudgetShape | None


@router.get("/budgets", response_model=None, responses={200: {"model": MonthlyBudgetPage}})
def budgets(request: Request, caller: Reader) -> Response:
    """Monthly budgets of the projects that the key opens."""
    with parts_of(request).runtime.begin() as uow:
        opened = opened_ids(uow, caller)
        found = [
            budget_standing(uow, project_id, name)
            for project_id, name in uow.monthly_budgets.projects()
            if opened is None or project_id in opened
        ]
    return page([_document(one) for one in found if one is not None], None)


@router.get(
    "/projects/{project}/budget",
    response_model=None,
    responses={200: {"model": AskedBudgetShape}},
)
async def project_budget(request: Request, caller: Reader, project: str) -> Response:
    """The project's budget of a month."""
    parts = parts_of(request)
    inside = await parts.keys.in_project(caller, project)
    return as_json(await to_thread.run_sync(_read, parts, inside))


@router.put(
    "/projects/{project}/budget",
    response_model=None,
    responses={200: {"model": AskedBudgetShape}},
)
async def put_budget(
    request: Request, caller: RuleManager, project: str, body: Annotated[NewMonthlyBudget, Body()]
) -> Response:
    """Give the project a budget of a month, or another one, or none.

    With more money than before, jobs that paused for want of it go back into the queue.
    """
    parts = parts_of(request)
    inside = await parts.keys.in_project(caller, project)
    return as_json(await to_thread.run_sync(_set, parts, inside, *_read_budget(body)))


@router.get("/budget", response_model=None, responses={200: {"model": AskedBudgetShape}})
def deployment_budget(request: Request, caller: DeploymentReader) -> Response:
    """The budget of a month of all projects together."""
    return as_json(_read(parts_of(request), caller, BudgetOwner.DEPLOYMENT))


@router.put("/budget", response_model=None, responses={200: {"model": AskedBudgetShape}})
async def put_deployment_budget(
    request: Request, caller: DeploymentAdmin, body: Annotated[NewMonthlyBudget, Body()]
) -> Response:
    """Give all projects together a budget of a month, or another one, or none."""
    given = (*_read_budget(body), BudgetOwner.DEPLOYMENT)
    return as_json(await to_thread.run_sync(_set, parts_of(request), caller, *given))


def _read_budget(body: NewMonthlyBudget) -> tuple[int | None, AtFull | None]:
    at_full = None if body.at_100 is None else read_at_full(body.at_100)
    return None if body.monthly_usd is None else _read_usd(body.monthly_usd), at_full


def _read_usd(written: float | int | str) -> int:
    try:
        return parse_usd(written, at_least_microusd=MIN_BUDGET_MICROUSD)
    except InvalidValue as error:
        raise InvalidValue(f"monthly_usd: {error.message}", "monthly_usd") from error


def _read(
    parts: ApiParts, caller: Principal, owner: BudgetOwner = BudgetOwner.PROJECT
) -> dict[str, Any]:
    with parts.runtime.begin() as uow:
        if owner is BudgetOwner.DEPLOYMENT:
            found = budget_standing(uow, DEPLOYMENT_PAYER)
        else:
            found = budget_standing(uow, caller.project_id, caller.project_name)
    return {"budget": None if found is None else _document(found)}


def _set(
    parts: ApiParts,
    caller: Principal,
    cap_microusd: int | None,
    at_full: AtFull | None,
    owner: BudgetOwner = BudgetOwner.PROJECT,
) -> dict[str, Any]:
    entropy = parts.runtime.entropy
    with parts.runtime.begin() as uow:
        if cap_microusd is None:
            remove_budget(uow, entropy, caller, owner)
        else:
            set_budget(uow, entropy, caller, cap_microusd, at_full, owner)
    return _read(parts, caller, owner)


def _document(standing: BudgetStanding) -> dict[str, Any]:
    budget = standing.budget
    return {
        "project": standing.project,
        "monthly_microusd": budget.cap_microusd,
        "at_100": budget.at_full,
        "month_at": budget.month_at,
        "ends_at": budget.ends_at,
        "spent_microusd": budget.spent_microusd,
        "reserved_microusd": standing.reserved_microusd,
        "percent": budget.percent,
        "microusd_per_hour": standing.microusd_per_hour,
        "forecast_microusd": standing.forecast_microusd,
        "thresholds": list(standing.thresholds),
    }
