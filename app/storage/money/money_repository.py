"""Budgets, the append-only ledger and its rollup, in PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Final, TypedDict
from uuid import UUID

from sqlalchemy import BindParameter, bindparam, func, insert, or_, select, text, update
from sqlalchemy.dialects.postgresql import insert as upsert

from app.domain.launch_limits.monthly_budget import DEPLOYMENT_PAYER, month_of
from app.domain.lifecycle.entities import Budget
from app.storage.money.job_cost_report import job_cost
from app.storage.schema import tables
from app.storage.schema.money_tables import (
    assignments,
    cost_rollups,
    ledger_entries,
    monthly_budgets,
)
from app.storage.session.ready_statement import Ready
from app.storage.session.record_session import Repository


@dataclass(frozen=True, order=True)
class Payer:
    """A job that pays for a machine, with the budgets that its money counts against."""

    project_id: UUID
    budget_id: UUID
    job_id: UUID


class LedgerRow(TypedDict):
    """One entry as the ledger stores it, by column; amounts in micro-USD, instants aware.

    component, kind, reason: values of `Component`, `EntryKind` and `AdjustmentReason`.
    usage_hour_at: the hour that is billed; usage_from_at, usage_to_at: what of it. job_id,
    project_id, attempt_id: who pays, None for an hour that no job had the machine.
    """

    id: UUID
    instance_id: UUID
    component: str
    assignment_id: UUID | None
    usage_hour_at: datetime
    job_id: UUID | None
    project_id: UUID | None
    attempt_id: UUID | None
    kind: str
    reason: str | None
    amount_microusd: int
    usage_from_at: datetime
    usage_to_at: datetime
    booked_at: datetime
    price_source: str
    price_captured_at: datetime | None
    rule_id: str
    estimated: bool


class RollupRow(TypedDict):
    """A sum of ledger entries of one machine, day, payer, component and kind, by column."""

    instance_id: UUID
    rollup_key: str
    day: date
    project_id: UUID | None
    job_id: UUID | None
    component: str
    kind: str
    amount_microusd: int
    entries: int


@dataclass(frozen=True)
class Billing:
    """When a machine's bill is due: all in seconds.

    accrual_seconds: a running machine is booked this often. settle_seconds: how long after its
    end the cloud may still correct what it said.
    """

    accrual_seconds: float
    settle_seconds: float


_budgets = tables.budgets
_NEW_SUM = upsert(cost_rollups).values(
    {column.name: bindparam(column.name) for column in cost_rollups.columns}
)
_ADD_TO_ROLLUP = Ready(
    _NEW_SUM.on_conflict_do_update(
        index_elements=["instance_id", "rollup_key"],
        set_={
            name: cost_rollups.c[name] + _NEW_SUM.excluded[name]
            for name in ("amount_microusd", "entries")
        },
    )
)
_BY_RANK = (_budgets.c.job_id.is_not(None), _budgets.c.id)
_OWN_OF_PROJECT = (_budgets.c.project_id == bindparam("of_project")) & _budgets.c.job_id.is_(None)
_TWO = (
    select(*_budgets.c)
    .where(or_(_budgets.c.id == bindparam("this_budget"), _OWN_OF_PROJECT))
    .order_by(*_BY_RANK)
)
_READ_TWO = Ready(_TWO)
_LOCK_TWO = Ready(_TWO.with_for_update(key_share=True))
_LOCK_TWO_OR_SKIP = Ready(_TWO.with_for_update(key_share=True, skip_locked=True))
_LOCK_RESERVED = Ready(
    select(*_budgets.c)
    .where(
        _budgets.c.project_id == bindparam("of_project"),
        or_(text("budgets.reserved_microusd > 0"), _budgets.c.job_id.is_(None)),
    )
    .order_by(*_BY_RANK)
    .with_for_update(key_share=True)
)
_OF_JOBS = select(func.sum(_budgets.c.reserved_microusd)).where(
    _budgets.c.project_id == bindparam("of_project"),
    # Only these are indexed; the others would add nothing.
    text("budgets.reserved_microusd > 0"),
    _budgets.c.job_id.is_not(None),
)
_RESERVED = Ready(_OF_JOBS)
# Every job's, of all projects; from the same index.
_BY_ALL = select(func.coalesce(func.sum(_budgets.c.reserved_microusd), 0)).where(
    text("budgets.reserved_microusd > 0"), _budgets.c.job_id.is_not(None)
)
RESERVED_BY_ALL: Final = _BY_ALL.correlate(None).scalar_subquery()
_RESERVED_BY_ALL_OTHERS = Ready(_BY_ALL.where(_budgets.c.job_id != bindparam("this_job")))
_RESERVED_BY_ALL = Ready(_BY_ALL)
_RESERVED_BY_OTHERS = Ready(_OF_JOBS.where(_budgets.c.job_id != bindparam("this_job")))
_OF_INSTANCE: BindParameter[Any] = bindparam("this_instance")
_PAYERS = Ready(
    select(tables.jobs.c.project_id, tables.jobs.c.budget_id, tables.jobs.c.id).where(
        tables.jobs.c.id.in_(
            select(tables.instances.c.job_id)
            .where(tables.instances.c.id == _OF_INSTANCE)
            .union(select(assignments.c.job_id).where(assignments.c.instance_id == _OF_INSTANCE))
        )
    )
)
_CELL = (
    ledger_entries.c.component,
    ledger_entries.c.assignment_id,
    ledger_entries.c.usage_hour_at,
)
_BOOKED = Ready(
    select(*_CELL, func.sum(ledger_entries.c.amount_microusd))
    .where(ledger_entries.c.instance_id == _OF_INSTANCE)
    .group_by(*_CELL)
    .order_by(
        ledger_entries.c.component, ledger_entries.c.usage_hour_at, ledger_entries.c.assignment_id
    )
)
_ADD_ENTRY = Ready(
    insert(ledger_entries).values(
        {column.name: bindparam(column.name) for column in ledger_entries.columns}
    )
)
_ADD = (
    update(_budgets)
    .values(spent_microusd=_budgets.c.spent_microusd + bindparam("amount"))
    .returning(_budgets.c.id, _budgets.c.spent_microusd)
)
_SPENT_BY_JOB = Ready(
    _ADD.where(
        _budgets.c.id
        == select(tables.jobs.c.budget_id)
        .where(tables.jobs.c.id == bindparam("of_id"))
        .scalar_subquery()
    )
)
_SPENT_BY_PROJECT = Ready(
    _ADD.where(_budgets.c.project_id == bindparam("of_id"), _budgets.c.job_id.is_(None))
)
# What is booked late for the usage of another month is no spending of this one.
_SPENT_IN_MONTH = Ready(
    update(monthly_budgets)
    .where(
        monthly_budgets.c.payer_id == bindparam("of_id"),
        monthly_budgets.c.month_at == bindparam("in_month"),
    )
    .values(spent_microusd=monthly_budgets.c.spent_microusd + bindparam("amount"))
    .returning(monthly_budgets.c.payer_id)
)


class MoneyRepository(Repository):
    """Budgets, ledger and rollup."""

    def lock_budgets(self, project_id: UUID, budget_id: UUID) -> list[Budget]:
        """The project's own budget, if any, and the job's, locked in that order.

        Writers wait, foreign keys do not: a transaction that holds a job and writes it twice has
        its reference to the budget checked, which would wait for us while we wait for the job.
        """
        given = {"of_project": project_id, "this_budget": budget_id}
        return self._session.all(Budget, _LOCK_TWO, given, again=True)

    def budgets(self, project_id: UUID, budget_id: UUID) -> list[Budget]:
        """The same without a lock, to be read only."""
        given = {"of_project": project_id, "this_budget": budget_id}
        return self._session.all(Budget, _READ_TWO, given)

    def lock_free_budgets(self, project_id: UUID, budget_id: UUID) -> list[Budget]:
        """Those of the same that no other transaction has, locked without waiting."""
        given = {"of_project": project_id, "this_budget": budget_id}
        return self._session.all(Budget, _LOCK_TWO_OR_SKIP, given, again=True)

    def lock_reservations(self, project_id: UUID) -> list[Budget]:
        """Every budget of the project that has money reserved, its own first, locked in order."""
        given = {"of_project": project_id}
        return self._session.all(Budget, _LOCK_RESERVED, given, again=True)

    def reserved_by_all(self, but: UUID | None = None) -> int:
        """What the jobs of all projects have reserved; but: without this one."""
        if but is None:
            return int(self._session.scalar(_RESERVED_BY_ALL))
        return int(self._session.scalar(_RESERVED_BY_ALL_OTHERS, {"this_job": but}))

    def reserved_by_others(self, project_id: UUID, job_id: UUID) -> int:
        """What all other jobs of the project have reserved."""
        given = {"of_project": project_id, "this_job": job_id}
        return int(self._session.scalar(_RESERVED_BY_OTHERS, given) or 0)

    def reserved_by_jobs(self, project_id: UUID) -> int:
        """What all jobs of the project have reserved."""
        given = {"of_project": project_id}
        return int(self._session.scalar(_RESERVED, given) or 0)

    def payers(self, instance_id: UUID) -> list[Payer]:
        """The instance's job and every job it was assigned to, in the order of locking."""
        found = self._session.rows(_PAYERS, {"this_instance": instance_id})
        return sorted(Payer(*row) for row in found)

    def booked(self, instance_id: UUID) -> dict[tuple[str, UUID | None, datetime], int]:
        """Sum of entries per (component, assignment, usage hour) of an instance."""
        found = self._session.rows(_BOOKED, {"this_instance": instance_id})
        return {(component, span, hour): int(amount) for component, span, hour, amount in found}

    def append_entries(self, rows: Sequence[LedgerRow]) -> None:
        """Append ledger entries; rollup and spent sums move in the same transaction."""
        if not rows:
            return
        self._session.write(_ADD_ENTRY, rows)
        spent: dict[UUID, int] = {}
        projects: dict[UUID, int] = {}
        months: dict[tuple[UUID, datetime], int] = {}
        for row in rows:
            if row["job_id"] is not None:
                spent[row["job_id"]] = spent.get(row["job_id"], 0) + row["amount_microusd"]
            if row["project_id"] is not None:
                project = row["project_id"]
                projects[project] = projects.get(project, 0) + row["amount_microusd"]
            for payer in filter(None, (row["project_id"], DEPLOYMENT_PAYER)):
                used = (payer, month_of(row["usage_hour_at"]))
                months[used] = months.get(used, 0) + row["amount_microusd"]
        self._add_to_rollup(rows)
        for job_id in sorted(spent):
            self._add_spent(_SPENT_BY_JOB, job_id, spent[job_id])
        for project_id in sorted(projects):
            self._add_spent(_SPENT_BY_PROJECT, project_id, projects[project_id])
        # The deployment's last: all bookings write it.
        for payer, month_at in sorted(months, key=lambda one: (one[0] == DEPLOYMENT_PAYER, one)):
            amount = months[payer, month_at]
            given = {"of_id": payer, "in_month": month_at, "amount": amount}
            self._session.rows(_SPENT_IN_MONTH, given)

    def _add_to_rollup(self, rows: Sequence[LedgerRow]) -> None:
        """One row per machine, day, payer, component and kind; always in the same order of
        locking.
        """
        sums: dict[tuple[UUID, str], RollupRow] = {}
        for row in rows:
            day = row["usage_hour_at"].date()
            names = (day, row["project_id"], row["job_id"], row["component"], row["kind"])
            key = "/".join(str(name) for name in names)
            empty: RollupRow = {
                "instance_id": row["instance_id"],
                "rollup_key": key,
                "day": day,
                "project_id": row["project_id"],
                "job_id": row["job_id"],
                "component": row["component"],
                "kind": row["kind"],
                "amount_microusd": 0,
                "entries": 0,
            }
            found = sums.setdefault((row["instance_id"], key), empty)
            found["amount_microusd"] += row["amount_microusd"]
            found["entries"] += 1
        self._session.write(_ADD_TO_ROLLUP, [sums[key] for key in sorted(sums)])

    def _add_spent(self, statement: Ready, of_id: UUID, amount_microusd: int) -> None:
        # A budget this transaction has loaded (its lock was taken first) shows the new sum.
        given = {"of_id": of_id, "amount": amount_microusd}
        for budget_id, spent in self._session.rows(statement, given):
            self._session.renew(Budget, (budget_id,), spent_microusd=spent)

    def on_demand_comparison(self, job_id: UUID) -> int | None:
        """What the job's useful work would have cost on demand, as its cost statement says."""
        cost = job_cost(self._session.connection(), job_id, None)
        return None if cost is None else cost.statement.on_demand_comparison_microusd
