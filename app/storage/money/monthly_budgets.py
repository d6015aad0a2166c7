"""Monthly budgets of projects and of the deployment, and the thresholds that were told of them, in
PostgreSQL.

Whoever changes one of a project holds the row of the project's own budget, as bookings do. Who
changes that of the deployment waits for all bookings, which write it after everything else. Not
here: what they cover (`app.domain.billing.headroom`), or the ledger (`money_repository`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    Date,
    and_,
    bindparam,
    case,
    cast,
    delete,
    func,
    insert,
    or_,
    select,
    text,
    update,
)
from sqlalchemy.dialects.postgresql import insert as upsert

from app.domain.launch_limits.monthly_budget import (
    DEPLOYMENT_PAYER,
    THRESHOLDS,
    AtFull,
    MonthlyBudget,
    next_month,
)
from app.domain.lifecycle.job import BudgetKind, JobState
from app.storage.money.money_repository import RESERVED_BY_ALL, Payer
from app.storage.schema import tables
from app.storage.schema.money_tables import budget_thresholds, cost_rollups, monthly_budgets
from app.storage.session.ready_statement import Ready
from app.storage.session.record_session import Repository

_NEVER = datetime(1970, 1, 1, tzinfo=UTC)
_budgets, _jobs = tables.budgets, tables.jobs
_VALUES = (
    monthly_budgets.c.cap_microusd,
    monthly_budgets.c.at_full,
    monthly_budgets.c.month_at,
    monthly_budgets.c.spent_microusd,
)
_IS_OF = monthly_budgets.c.payer_id == bindparam("of_payer")
_ONE = Ready(select(*_VALUES).where(_IS_OF))
_BOTH = Ready(
    select(monthly_budgets.c.payer_id, *_VALUES).where(
        or_(
            monthly_budgets.c.payer_id == bindparam("of_project"),
            monthly_budgets.c.payer_id == DEPLOYMENT_PAYER,
        )
    )
)
# A booking locks the row of its month alone: where that is not there yet, or is still of the month
# before, none. It has the table in any case.
_LOCK_TABLE = text("LOCK TABLE monthly_budgets IN SHARE ROW EXCLUSIVE MODE")
_LOCK = Ready(
    select(_budgets.c.id)
    .where(_budgets.c.project_id == bindparam("of_project"), _budgets.c.job_id.is_(None))
    .with_for_update(key_share=True)
)
_SPENT = select(cast(func.coalesce(func.sum(cost_rollups.c.amount_microusd), 0), BigInteger)).where(
    cost_rollups.c.day >= bindparam("first", type_=Date),
    cost_rollups.c.day < bindparam("beyond", type_=Date),
)
_SPENT_BY_ALL = Ready(_SPENT)
_SPENT_BY_ONE = Ready(_SPENT.where(cost_rollups.c.project_id == bindparam("of_project")))
_TOLD = select(budget_thresholds.c.percent).where(
    budget_thresholds.c.payer_id == bindparam("of_payer"),
    budget_thresholds.c.month_at == bindparam("in_month"),
)
_TOLD_OF = Ready(_TOLD)
_REACHED = case(
    *(
        (
            monthly_budgets.c.spent_microusd * 100 >= monthly_budgets.c.cap_microusd * percent,
            1 + THRESHOLDS.index(percent),
        )
        for percent in sorted(THRESHOLDS, reverse=True)
    ),
    else_=0,
)
_TOLD_COUNT = (
    select(func.count())
    .where(
        budget_thresholds.c.payer_id == monthly_budgets.c.payer_id,
        budget_thresholds.c.month_at == monthly_budgets.c.month_at,
    )
    .scalar_subquery()
)
_DUE = Ready(
    select(monthly_budgets.c.payer_id)
    .where(or_(monthly_budgets.c.month_at < bindparam("this_month"), _REACHED > _TOLD_COUNT))
    .order_by(monthly_budgets.c.payer_id)
    .limit(bindparam("at_most"))
)
_PROJECTS = Ready(
    select(tables.projects.c.id, tables.projects.c.name)
    .join(monthly_budgets, monthly_budgets.c.payer_id == tables.projects.c.id)
    .order_by(tables.projects.c.name)
)
_FIRST_MONTH = Ready(select(func.min(monthly_budgets.c.month_at)))
_mine, _shared = monthly_budgets.alias("mine"), monthly_budgets.alias("shared")
# A month has paused them, which has money again or no budget any more, and no other month would
# pause them at once.
_PAUSED = Ready(
    select(_jobs.c.project_id, _jobs.c.budget_id, _jobs.c.id)
    .outerjoin(
        _budgets,
        and_(_budgets.c.project_id == _jobs.c.project_id, _budgets.c.job_id.is_(None)),
    )
    .outerjoin(_mine, _mine.c.payer_id == _jobs.c.project_id)
    .outerjoin(_shared, _shared.c.payer_id == DEPLOYMENT_PAYER)
    .where(
        # As text, so that the index of jobs that have not ended serves.
        text(f"jobs.{tables.one_of('state', (JobState.PAUSED,))}"),
        or_(
            *(
                and_(
                    _jobs.c.paused_by_budget == kind,
                    or_(month.c.payer_id.is_(None), _jobs.c.paused_at < month.c.room_since_at),
                )
                for kind, month in (
                    (BudgetKind.PROJECT_MONTH, _mine),
                    (BudgetKind.DEPLOYMENT_MONTH, _shared),
                )
            )
        ),
        or_(
            _mine.c.payer_id.is_(None),
            _mine.c.spent_microusd + func.coalesce(_budgets.c.reserved_microusd, 0)
            < _mine.c.cap_microusd,
        ),
        or_(
            _shared.c.payer_id.is_(None),
            _shared.c.spent_microusd + RESERVED_BY_ALL < _shared.c.cap_microusd,
        ),
    )
    .order_by(_jobs.c.queue_rank_at, _jobs.c.id)
    .limit(bindparam("at_most"))
)


@dataclass(frozen=True)
class ToldThreshold:
    """A share of a budget that was reached, in percent."""

    percent: int
    told_at: datetime
    spent_microusd: int


class MonthlyBudgets(Repository):
    """Monthly budgets and their thresholds."""

    def of(self, payer_id: UUID) -> MonthlyBudget | None:
        """The payer's; None where it has none."""
        row = self._session.row(_ONE, {"of_payer": payer_id})
        return None if row is None else _budget(row)

    def over(self, project_id: UUID) -> tuple[MonthlyBudget | None, MonthlyBudget | None]:
        """Those that machines of the project count against: the project's, and the deployment's."""
        given = {"of_project": project_id}
        found = {row[0]: _budget(row[1:]) for row in self._session.rows(_BOTH, given)}
        return found.get(project_id), found.get(DEPLOYMENT_PAYER)

    def lock(self, payer_id: UUID, made_id: UUID) -> None:
        """Let nobody else change the payer's budget, and no claim or booking count against it.

        made_id: of the project's own budget, which is made if it is missing.
        """
        if payer_id == DEPLOYMENT_PAYER:
            self._session.execute(_LOCK_TABLE)
            return
        project_id = payer_id
        if self._session.row(_LOCK, {"of_project": project_id}) is None:
            self._session.execute(_LOCK_TABLE)
            self._session.execute(
                insert(_budgets).values(
                    id=made_id, project_id=project_id, job_id=None, cap_microusd=None,
                    spent_microusd=0, reserved_microusd=0,
                )
            )  # fmt: skip

    def spent_in(self, payer_id: UUID, month_at: datetime) -> int:
        """What is booked for the usage of a month, whenever it was booked."""
        first, beyond = month_at.astimezone(UTC).date(), next_month(month_at).date()
        days: dict[str, Any] = {"first": first, "beyond": beyond}
        if payer_id == DEPLOYMENT_PAYER:
            return int(self._session.scalar(_SPENT_BY_ALL, days))
        return int(self._session.scalar(_SPENT_BY_ONE, {**days, "of_project": payer_id}))

    def set(
        self,
        payer_id: UUID,
        budget: MonthlyBudget,
        room_since_at: datetime | None,
        by: str,
        now: datetime,
    ) -> None:
        """Give the payer this budget. room_since_at: None leaves it as it is; a first budget gives
        nobody more money than before.
        """
        values: dict[str, Any] = {
            "cap_microusd": budget.cap_microusd,
            "at_full": budget.at_full,
            "month_at": budget.month_at,
            "spent_microusd": budget.spent_microusd,
            "changed_at": now,
            "changed_by": by,
        }
        renewed = values if room_since_at is None else {**values, "room_since_at": room_since_at}
        self._session.execute(
            upsert(monthly_budgets)
            .values(payer_id=payer_id, room_since_at=room_since_at or _NEVER, **values)
            .on_conflict_do_update(index_elements=["payer_id"], set_=renewed)
        )

    def begin_month(self, payer_id: UUID, month_at: datetime, spent: int, now: datetime) -> None:
        """Count from now on what is booked for the usage of this month."""
        self._session.execute(
            update(monthly_budgets)
            .where(monthly_budgets.c.payer_id == payer_id)
            .values(month_at=month_at, spent_microusd=spent, room_since_at=now)
        )

    def remove(self, payer_id: UUID) -> None:
        """Let the payer have none."""
        self._session.execute(delete(monthly_budgets).where(monthly_budgets.c.payer_id == payer_id))

    def projects(self) -> list[tuple[UUID, str]]:
        """The projects that have one, with their names, by name."""
        return [(project_id, name) for project_id, name in self._session.rows(_PROJECTS)]

    def due(self, month_at: datetime, limit: int) -> list[UUID]:
        """Payers whose month is over, or that have reached a threshold that was not told."""
        return self._session.ids(_DUE, {"this_month": month_at, "at_most": limit})

    def first_month(self) -> datetime | None:
        """The oldest month that a budget is of."""
        return self._session.instant(_FIRST_MONTH)

    def told_in(self, payer_id: UUID, month_at: datetime) -> frozenset[int]:
        """The thresholds that were told in this month."""
        given = {"of_payer": payer_id, "in_month": month_at}
        return frozenset(row[0] for row in self._session.rows(_TOLD_OF, given))

    def tell(
        self, payer_id: UUID, budget: MonthlyBudget, percents: Sequence[int], now: datetime
    ) -> None:
        """Remember that these thresholds are reached."""
        for percent in percents:
            self._session.execute(
                insert(budget_thresholds).values(
                    payer_id=payer_id, month_at=budget.month_at, percent=percent, told_at=now,
                    spent_microusd=budget.spent_microusd, cap_microusd=budget.cap_microusd,
                )
            )  # fmt: skip

    def told(self, payer_id: UUID, month_at: datetime) -> list[ToldThreshold]:
        """The same with their times, the lowest first."""
        found = budget_thresholds.c
        statement = (
            select(found.percent, found.told_at, found.spent_microusd)
            .where(found.payer_id == payer_id, found.month_at == month_at)
            .order_by(found.percent)
        )
        return [ToldThreshold(*row) for row in self._session.execute(statement)]

    def paused(self, limit: int) -> list[Payer]:
        """Jobs that a budget of a month paused before it had money again, or was removed."""
        return [Payer(*row) for row in self._session.rows(_PAUSED, {"at_most": limit})]


def _budget(row: Sequence[Any]) -> MonthlyBudget:
    return MonthlyBudget(row[0], AtFull(row[1]), row[2], row[3])
