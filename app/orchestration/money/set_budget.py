"""Monthly budgets of a project or of the deployment: give it one, change it, remove it; and how the
month stands.

Not here: what a budget covers (`gang.reserve_budget`), or the beginning of months
(`budget_months`).
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from app.domain.access.may import DEPLOYMENT, Resource, require
from app.domain.access.principal import Principal
from app.domain.access.roles import Action
from app.domain.audit.audit_action import AuditAction, SubjectKind
from app.domain.audit.audit_entry import Subject
from app.domain.billing.budget import BudgetOwner
from app.domain.launch_limits.monthly_budget import (
    DEPLOYMENT_PAYER,
    AtFull,
    MonthlyBudget,
    month_of,
)
from app.orchestration.audit.record_action import record_action
from app.orchestration.money.budget_months import RESUME_CONTROLLER
from app.ports.entropy import Entropy
from app.storage.money.monthly_budgets import ToldThreshold
from app.storage.unit_of_work import UnitOfWork


@dataclass(frozen=True)
class BudgetStanding:
    """How the month of a budget stands; money in micro-USD.

    project: None for the deployment's. reserved: for machines that run or are requested. hourly:
    what they cost an hour now. forecast: of the whole month, if they go on.
    """

    project: str | None
    budget: MonthlyBudget
    reserved_microusd: int
    microusd_per_hour: int
    forecast_microusd: int
    thresholds: tuple[ToldThreshold, ...]


def set_budget(
    uow: UnitOfWork,
    entropy: Entropy,
    principal: Principal,
    cap_microusd: int,
    at_full: AtFull | None,
    owner: BudgetOwner = BudgetOwner.PROJECT,
) -> None:
    """Give the principal's project, or the deployment, this budget of a month. The same again only
    counts anew what is booked: a worker of the release before books without counting. at_full:
    None keeps what it is, and is `block_new` of a first budget.

    With more money than before, jobs that paused for want of it go back into the queue. Waits for
    launches that are being written. Raises Forbidden.
    """
    payer_id, before = _locked(uow, entropy, principal, owner)
    now = uow.now
    month = month_of(now)
    spent = uow.monthly_budgets.spent_in(payer_id, month)
    if at_full is None:
        at_full = AtFull.BLOCK_NEW if before is None else before.at_full
    after = MonthlyBudget(cap_microusd, at_full, month, spent)
    if before == after:
        return
    # Nobody may have noticed yet that another month has begun.
    raised = before is not None and (cap_microusd > before.cap_microusd or before.month_at < month)
    by = str(principal.actor)
    uow.monthly_budgets.set(payer_id, after, now if raised else None, by, now)
    if before is None or _facts(before) != _facts(after):
        _record(uow, entropy, principal, owner, before, after)
    uow.notify_after_commit(RESUME_CONTROLLER)


def remove_budget(
    uow: UnitOfWork,
    entropy: Entropy,
    principal: Principal,
    owner: BudgetOwner = BudgetOwner.PROJECT,
) -> None:
    """Let the principal's project, or the deployment, have no budget of a month; jobs that it has
    paused go back into the queue. Raises Forbidden.
    """
    payer_id, before = _locked(uow, entropy, principal, owner)
    if before is None:
        return
    uow.monthly_budgets.remove(payer_id)
    _record(uow, entropy, principal, owner, before, None)
    uow.notify_after_commit(RESUME_CONTROLLER)


def budget_standing(
    uow: UnitOfWork, payer_id: UUID, project: str | None = None
) -> BudgetStanding | None:
    """How the month of a project or (`DEPLOYMENT_PAYER`) of the deployment stands; None where it
    has no budget of a month.
    """
    budget = uow.monthly_budgets.of(payer_id)
    if budget is None:
        return None
    of_all = payer_id == DEPLOYMENT_PAYER
    hourly = _hourly(uow, None if of_all else payer_id)
    money = uow.money
    return BudgetStanding(
        project,
        budget,
        money.reserved_by_all() if of_all else money.reserved_by_jobs(payer_id),
        hourly,
        budget.forecast(hourly, uow.now),
        tuple(uow.monthly_budgets.told(payer_id, budget.month_at)),
    )


def _hourly(uow: UnitOfWork, project_id: UUID | None) -> int:
    """What the project's machines cost an hour; one without an answer of its cloud, at its
    dearest. None: all machines.
    """
    held = uow.launch_gate.held(project_id)
    pools = sorted({pool for one in held for pool in one.pools})
    prices = {offer.pool: offer.billed_microusd_per_hour for offer, _ in uow.offers.of(pools)}
    return sum(
        one.count * max((prices.get(pool, 0) for pool in one.pools), default=0) for one in held
    )


def _locked(
    uow: UnitOfWork, entropy: Entropy, principal: Principal, owner: BudgetOwner
) -> tuple[UUID, MonthlyBudget | None]:
    if owner is BudgetOwner.DEPLOYMENT:
        require(principal, Action.OPERATE_DEPLOYMENT, DEPLOYMENT)
        payer_id = DEPLOYMENT_PAYER
        # Launches read it without its row: none may be written that has not seen it.
        uow.launch_gate.close()
    else:
        payer_id = principal.project_id
        require(principal, Action.MANAGE_RULES, Resource(payer_id))
    uow.monthly_budgets.lock(payer_id, entropy.new_id())
    return payer_id, uow.monthly_budgets.of(payer_id)


def _record(
    uow: UnitOfWork,
    entropy: Entropy,
    principal: Principal,
    owner: BudgetOwner,
    before: MonthlyBudget | None,
    after: MonthlyBudget | None,
) -> None:
    if owner is BudgetOwner.DEPLOYMENT:
        deployment_id = str(uow.operations.deployment_id())
        subject = Subject(SubjectKind.DEPLOYMENT, deployment_id, deployment_id, None)
        action = AuditAction.DEPLOYMENT_BUDGET
    else:
        project_id = principal.project_id
        subject = Subject(SubjectKind.PROJECT, str(project_id), principal.project_name, project_id)
        action = AuditAction.PROJECT_BUDGET
    record_action(uow, entropy, principal, action, subject, _facts(before), _facts(after))


def _facts(budget: MonthlyBudget | None) -> dict[str, object]:
    if budget is None:
        return {"cap_microusd": None}
    return {"cap_microusd": budget.cap_microusd, "at_full": budget.at_full}
