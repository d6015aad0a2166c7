"""Months of budgets, of projects and of the deployment: their beginning, the thresholds that are
reached, and who goes on then.

Lives here: two controllers. Not here: what a budget covers (`gang.reserve_budget`), who is stopped
for it (`enforce_budgets`), or who sets it (`set_budget`).
"""

from __future__ import annotations

import logging
from datetime import datetime
from uuid import UUID

from app.domain.launch_limits.monthly_budget import (
    DEPLOYMENT_PAYER,
    MonthlyBudget,
    month_of,
    next_month,
)
from app.domain.lifecycle.job import MONTHLY_BUDGETS, JobState
from app.domain.notifications.triggers import Trigger
from app.domain.units.money import format_usd
from app.orchestration.frame.controller_frame import RowController
from app.orchestration.frame.tell_channels import tell_of_deployment, tell_of_month
from app.orchestration.gang.stop_job import resume_with_money
from app.storage.money.money_repository import Payer
from app.storage.unit_of_work import UnitOfWork

RESUME_CONTROLLER = "resume_for_budgets"
log = logging.getLogger(__name__)


class WatchBudgetMonths(RowController[UUID]):
    """The controller of `monthly_budgets.month_at` and of thresholds."""

    name = "watch_budget_months"
    limit = 50

    def select(self, uow: UnitOfWork, limit: int) -> list[UUID]:
        """Payers whose month is over, or that have reached another threshold."""
        return uow.monthly_budgets.due(month_of(uow.now), limit)

    def next_due(self, uow: UnitOfWork) -> datetime | None:
        """Now where there is such a payer, else the beginning of the next month."""
        first = uow.monthly_budgets.first_month()
        if first is None:
            return None
        is_due = uow.monthly_budgets.due(month_of(uow.now), 1)
        return uow.now if is_due else next_month(first)

    def apply(self, uow: UnitOfWork, work: UUID, result: None) -> None:
        """Begin a payer's month, and tell what is reached in it."""
        uow.monthly_budgets.lock(work, self._runtime.entropy.new_id())
        now = uow.now
        budget, month = uow.monthly_budgets.of(work), month_of(now)
        if budget is None:
            return
        if budget.month_at < month:
            spent = uow.monthly_budgets.spent_in(work, month)
            uow.monthly_budgets.begin_month(work, month, spent, now)
            uow.notify_after_commit(RESUME_CONTROLLER)
            return  # its thresholds are looked at next
        passed = budget.passed(uow.monthly_budgets.told_in(work, budget.month_at))
        uow.monthly_budgets.tell(work, budget, passed, now)
        for percent in passed:
            if work == DEPLOYMENT_PAYER:
                self._tell_admins(uow, budget, percent)
                continue
            log.info("project %s has spent %s %% of its budget of this month", work, percent)
            tell_of_month(uow, self._runtime.entropy, work, budget, percent)

    def _tell_admins(self, uow: UnitOfWork, budget: MonthlyBudget, percent: int) -> None:
        spent, cap = format_usd(budget.spent_microusd), format_usd(budget.cap_microusd)
        reason = f"{percent} % is spent: {spent} of {cap}."
        log.info("the deployment's budget of this month: %s", reason)
        occasion = f"month/deployment/{budget.month_at.date()}/{percent}"
        trigger = Trigger.DEPLOYMENT_BUDGET
        tell_of_deployment(uow, self._runtime.entropy, trigger, reason, occasion)


class ResumeForBudgets(RowController[Payer]):
    """The controller of jobs that a budget of a month has paused, once it has money again."""

    name = RESUME_CONTROLLER
    limit = 50

    def select(self, uow: UnitOfWork, limit: int) -> list[Payer]:
        """Such jobs, in the order of the queue."""
        return uow.monthly_budgets.paused(limit)

    def next_due(self, uow: UnitOfWork) -> datetime | None:
        """Now, when there is such a job; nothing here waits for time."""
        return uow.now if uow.monthly_budgets.paused(1) else None

    def apply(self, uow: UnitOfWork, work: Payer, result: None) -> None:
        """Put one job back into the queue; its claim asks the budgets."""
        with self.locked(uow, work.job_id) as aggregate:
            if aggregate is None or aggregate.job.state is not JobState.PAUSED:
                return
            if aggregate.job.paused_by_budget in MONTHLY_BUDGETS:
                resume_with_money(aggregate)
