"""Order a stop where what is spent and reserved has reached a cap.

Rows tell when: spending and reservations are kept by `accrue_costs` and by claims, and a job is due
here once they reach its own cap, its project's, or that of a month. Not here: the arithmetic
(`billing.budget`), or how a job stops (`stop_job`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import chain
from uuid import UUID

from app.domain.billing.budget import BudgetCheck, BudgetOwner, stop_ordered
from app.domain.billing.headroom import BudgetLine
from app.domain.launch_limits.monthly_budget import AtFull
from app.domain.lifecycle.entities import Budget, Instance
from app.domain.lifecycle.job import CLAIMABLE_JOB_STATES, JobState
from app.orchestration.frame.controller_frame import RowController
from app.orchestration.gang.reserve_budget import live_reserve, write_reservation
from app.orchestration.gang.stop_job import stop_for_budget
from app.orchestration.money.accrue_costs import BUDGET_CONTROLLER
from app.storage.money.money_repository import Payer
from app.storage.unit_of_work import UnitOfWork

_WORKING = frozenset({JobState.STARTING, JobState.RUNNING})
# A job that waits may keep machines for its next attempt, and pays for them.
_SPENDING = _WORKING | CLAIMABLE_JOB_STATES


class EnforceBudgets(RowController[Payer]):
    """The controller of caps."""

    name = BUDGET_CONTROLLER
    limit = 50

    def select(self, uow: UnitOfWork, limit: int) -> list[Payer]:
        """Jobs that spend at or over a cap, as their rows stand."""
        return uow.jobs.over_budget(limit)

    def next_due(self, uow: UnitOfWork) -> datetime | None:
        """Now, when a job is at or over a cap; nothing here waits for time."""
        return uow.now if uow.jobs.over_budget(1) else None

    def apply(self, uow: UnitOfWork, work: Payer, result: None) -> None:
        """Reserve anew with what runs now; stop the job if that still reaches a cap."""
        limits = self._runtime.limits
        budgets = uow.money.lock_budgets(work.project_id, work.budget_id)
        # The project's own row serialises who may lock its other budgets; without it there is no
        # common cap, and nothing to lock them for.
        shared = any(budget.job_id is None for budget in budgets)
        others = uow.money.lock_reservations(work.project_id) if shared else []
        with self.locked(uow, work.job_id) as aggregate:
            if aggregate is None or aggregate.job.state not in _SPENDING:
                return
            self._reserve_anew(uow, work, budgets, others)
            if aggregate.job.state not in _WORKING and not aggregate.living():
                return
            own = ((BudgetLine.of(one), one.reserved_microusd) for one in budgets)
            for line, reserved in chain(own, _months(uow, work.project_id)):
                used_up = _used_up(line, reserved)
                if used_up is not None:
                    stop_for_budget(aggregate, used_up, limits)
                    return

    def _reserve_anew(
        self, uow: UnitOfWork, work: Payer, budgets: Sequence[Budget], others: Sequence[Budget]
    ) -> None:
        """Reservations of the job, and where a project's cap counts, of its other jobs too.

        A claim reserves its gang's first 15 minutes; nobody is stopped for what another job
        might have cost and does not.
        """
        limits = self._runtime.limits
        live: dict[UUID, list[Instance]] = {}
        for instance in uow.instances.live_of_project(work.project_id):
            if instance.job_id is not None:
                live.setdefault(instance.job_id, []).append(instance)
        for budget in others:
            job_id = budget.job_id
            if job_id is not None and job_id != work.job_id:
                mine = live.get(job_id, [])
                budget.reserved_microusd = live_reserve(uow, mine, limits, uow.now)
        mine = live.get(work.job_id, [])
        write_reservation(uow, budgets, work.job_id, live_reserve(uow, mine, limits, uow.now))


def _months(uow: UnitOfWork, project_id: UUID) -> Iterator[tuple[BudgetLine, int]]:
    """The budgets of this month that stop jobs, each with what all jobs have reserved of it."""
    own, shared = uow.monthly_budgets.over(project_id)
    if own is not None and own.at_full is AtFull.DRAIN_AND_PAUSE:
        reserved = uow.money.reserved_by_jobs(project_id)
        yield BudgetLine.of_month(BudgetOwner.PROJECT, own), reserved
    if shared is not None and shared.at_full is AtFull.DRAIN_AND_PAUSE:
        yield BudgetLine.of_month(BudgetOwner.DEPLOYMENT, shared), uow.money.reserved_by_all()


def _used_up(line: BudgetLine, reserved_microusd: int) -> BudgetCheck | None:
    """Why the budget stops the job; None where it does not."""
    verdict = stop_ordered(
        spent_microusd=line.spent_microusd,
        reserve_microusd=reserved_microusd,
        budget_microusd=line.cap_microusd,
    )
    return BudgetCheck(True, line.name(verdict.sentence), line.kind) if verdict.yes else None
