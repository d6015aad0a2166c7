"""Budgets, the append-only ledger and its rollup, in PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import func, insert, or_, select, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.orm import Session

from app.adapters.postgres import tables
from app.adapters.postgres.money_tables import assignments, cost_rollups, ledger_entries
from app.domain.entities import Budget
from app.ports.unit_of_work import Payer

_budgets = tables.budgets
_ROLLED_UP_BY = ("day", "project_id", "job_id", "component", "kind")
_NEW_SUM = upsert(cost_rollups)
_ADD_TO_ROLLUP = _NEW_SUM.on_conflict_do_update(
    index_elements=["rollup_key"],
    set_={
        name: cost_rollups.c[name] + _NEW_SUM.excluded[name]
        for name in ("amount_microusd", "entries")
    },
)


class MoneyRepository:
    """Implements `app.ports.unit_of_work.Money`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def lock_budgets(self, project_id: UUID, budget_id: UUID) -> list[Budget]:
        """The project's own budget, if any, and the job's, locked in that order.

        Writers wait, foreign keys do not: a transaction that holds a job and writes it twice has
        its reference to the budget checked, which would wait for us while we wait for the job.
        """
        statement = (
            select(Budget)
            .where(
                or_(
                    _budgets.c.id == budget_id,
                    (_budgets.c.project_id == project_id) & _budgets.c.job_id.is_(None),
                )
            )
            .order_by(_budgets.c.job_id.is_not(None), _budgets.c.id)
            .with_for_update(key_share=True)
            .execution_options(populate_existing=True)
        )
        return list(self._session.scalars(statement))

    def lock_reservations(self, project_id: UUID) -> list[Budget]:
        """Every budget of the project that has money reserved, its own first, locked in order."""
        statement = (
            select(Budget)
            .where(
                _budgets.c.project_id == project_id,
                or_(_budgets.c.reserved_microusd > 0, _budgets.c.job_id.is_(None)),
            )
            .order_by(_budgets.c.job_id.is_not(None), _budgets.c.id)
            .with_for_update(key_share=True)
            .execution_options(populate_existing=True)
        )
        return list(self._session.scalars(statement))

    def reserved_by_others(self, project_id: UUID, job_id: UUID) -> int:
        """What all other jobs of the project have reserved."""
        statement = select(func.coalesce(func.sum(_budgets.c.reserved_microusd), 0)).where(
            _budgets.c.project_id == project_id,
            # Only these are indexed; the others would add nothing.
            _budgets.c.reserved_microusd > 0,
            _budgets.c.job_id.is_not(None),
            _budgets.c.job_id != job_id,
        )
        return int(self._session.scalar(statement) or 0)

    def payers(self, instance_id: UUID) -> list[Payer]:
        """The instance's job and every job it was assigned to, in the order of locking."""
        instances, spans, jobs = tables.instances, assignments, tables.jobs
        owner = select(instances.c.job_id).where(instances.c.id == instance_id)
        assigned = select(spans.c.job_id).where(spans.c.instance_id == instance_id)
        statement = select(jobs.c.project_id, jobs.c.budget_id, jobs.c.id).where(
            jobs.c.id.in_(owner.union(assigned))
        )
        return sorted(Payer(*row) for row in self._session.execute(statement))

    def booked(self, instance_id: UUID) -> dict[tuple[str, UUID | None, datetime], int]:
        """Sum of entries per (component, assignment, usage hour) of an instance."""
        entry = ledger_entries.c
        statement = (
            select(
                entry.component,
                entry.assignment_id,
                entry.usage_hour_at,
                func.sum(entry.amount_microusd).label("amount"),
            )
            .where(entry.instance_id == instance_id)
            .group_by(entry.component, entry.assignment_id, entry.usage_hour_at)
            .order_by(entry.component, entry.usage_hour_at, entry.assignment_id)
        )
        return {
            (row.component, row.assignment_id, row.usage_hour_at): int(row.amount)
            for row in self._session.execute(statement)
        }

    def append_entries(self, rows: Sequence[dict[str, Any]]) -> None:
        """Append ledger entries; rollup and spent sums move in the same transaction."""
        if not rows:
            return
        self._session.execute(insert(ledger_entries), list(rows))
        spent: dict[UUID, int] = {}
        projects: dict[UUID, int] = {}
        for row in rows:
            if row["job_id"] is not None:
                spent[row["job_id"]] = spent.get(row["job_id"], 0) + row["amount_microusd"]
            if row["project_id"] is not None:
                project = row["project_id"]
                projects[project] = projects.get(project, 0) + row["amount_microusd"]
        self._add_to_rollup(rows)
        for job_id in sorted(spent):
            own_id = select(tables.jobs.c.budget_id).where(tables.jobs.c.id == job_id)
            self._add_spent(_budgets.c.id == own_id.scalar_subquery(), spent[job_id])
        for project_id in sorted(projects):
            own = (_budgets.c.project_id == project_id) & _budgets.c.job_id.is_(None)
            self._add_spent(own, projects[project_id])

    def _add_to_rollup(self, rows: Sequence[dict[str, Any]]) -> None:
        """One row per day, payer, component and kind; always in the same order of locking."""
        sums: dict[str, dict[str, Any]] = {}
        for row in rows:
            day = row["usage_hour_at"].date()
            names = (day, row["project_id"], row["job_id"], row["component"], row["kind"])
            key = "/".join(str(name) for name in names)
            fields = dict(zip(_ROLLED_UP_BY, names, strict=True))
            found = sums.setdefault(
                key, {"rollup_key": key, **fields, "amount_microusd": 0, "entries": 0}
            )
            found["amount_microusd"] += row["amount_microusd"]
            found["entries"] += 1
        self._session.execute(_ADD_TO_ROLLUP, [sums[key] for key in sorted(sums)])

    def _add_spent(self, which: Any, amount_microusd: int) -> None:
        # On the mapped record, so that a budget this session has loaded (its lock was taken
        # first) shows the new sum and not the one from before.
        self._session.execute(
            update(Budget)
            .where(which)
            .values(spent_microusd=_budgets.c.spent_microusd + amount_microusd),
            execution_options={"synchronize_session": "fetch"},
        )

    def spent_by_job(self, job_id: UUID) -> int:
        """Sum of all entries of a job."""
        statement = select(func.coalesce(func.sum(ledger_entries.c.amount_microusd), 0)).where(
            ledger_entries.c.job_id == job_id
        )
        return int(self._session.scalar(statement) or 0)

    def spent_by_project(self, project_id: UUID) -> int:
        """Sum of all entries of a project, for a project budget that is made later."""
        statement = select(func.coalesce(func.sum(ledger_entries.c.amount_microusd), 0)).where(
            ledger_entries.c.project_id == project_id
        )
        return int(self._session.scalar(statement) or 0)
