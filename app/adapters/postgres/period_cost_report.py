"""Costs of whole UTC days by project, job, label, pool or GPU, closed against the other sum.

Rows by project, job and label come from the rollup and are compared with the ledger; rows by pool
and GPU come from the ledger and are compared with the rollup. Not here: one job's report.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Select, Text, and_, case, func, literal, select, type_coerce
from sqlalchemy.orm import Session

from app.adapters.postgres import tables
from app.adapters.postgres.bill_due import is_unpriced
from app.adapters.postgres.money_tables import cost_rollups, ledger_entries, pools
from app.domain.errors import InvalidValue
from app.ports.read_models import UNALLOCATED, CostGroup, CostStatus, PeriodCosts, PeriodRow

_entry, _rollup, _jobs = ledger_entries.c, cost_rollups.c, tables.jobs.c
_UNBILLED_SHOWN_MAX = 100


@dataclass(frozen=True)
class Period:
    """Whole UTC days, both included, of one project or of all."""

    from_day: date
    to_day: date
    project_id: UUID | None

    def of_ledger(self) -> ColumnElement[bool]:
        """The period's entries, by usage."""
        start = datetime.combine(self.from_day, time(), UTC)
        end = datetime.combine(self.to_day, time(), UTC) + timedelta(days=1)
        within = and_(_entry.usage_hour_at >= start, _entry.usage_hour_at < end)
        if self.project_id is None:
            return within
        return and_(within, _entry.project_id == self.project_id)

    def of_rollup(self) -> ColumnElement[bool]:
        """The period's rollup rows."""
        within = _rollup.day.between(self.from_day, self.to_day)
        if self.project_id is None:
            return within
        return and_(within, _rollup.project_id == self.project_id)


def period_costs(
    session: Session, period: Period, group: CostGroup, label: str | None
) -> PeriodCosts:
    """The report. Raises InvalidValue for a reversed period, or `label` without a name."""
    if period.to_day < period.from_day:
        raise InvalidValue("the period ends before it begins; give the earlier day first")
    if group is CostGroup.LABEL and not label:
        raise InvalidValue("grouping by label needs the label's name, like label=team")
    rows = _rows(session.execute(_statement(period, group, label)))
    ledger = _sum(session, select(func.sum(_entry.amount_microusd)).where(period.of_ledger()))
    rollup = _sum(session, select(func.sum(_rollup.amount_microusd)).where(period.of_rollup()))
    other = rollup if group in (CostGroup.POOL, CostGroup.GPU) else ledger
    total = sum(row.amount_microusd for row in rows)
    return PeriodCosts(
        from_day=period.from_day,
        to_day=period.to_day,
        group=group,
        rows=rows,
        total_microusd=total,
        difference_microusd=total - other,
        by_day=_by_day(session, period),
        by_status=_by_status(session, period),
        unbilled=tuple(
            session.scalars(
                select(tables.instances.c.id)
                .where(is_unpriced())
                .order_by(tables.instances.c.id)
                .limit(_UNBILLED_SHOWN_MAX)
            )
        ),
    )


def _statement(period: Period, group: CostGroup, label: str | None) -> Select[Any]:
    """(has a job?, key, name, component, amount) per group and component."""
    if group in (CostGroup.POOL, CostGroup.GPU):
        return _by_machine(period, group)
    key: ColumnElement[Any]
    name: ColumnElement[Any]
    if group is CostGroup.PROJECT:
        key, name = _rollup.project_id, tables.projects.c.name
    elif group is CostGroup.JOB:
        key, name = _rollup.job_id, _jobs.name
    else:
        key = name = func.coalesce(_jobs.spec["labels"][label].astext, literal("(no label)"))
    has_job = _rollup.job_id.is_not(None)
    amount = func.sum(_rollup.amount_microusd).label("amount")
    cells = (has_job.label("has_job"), key.label("group_key"), name.label("group_name"))
    return (
        select(*cells, _rollup.component, amount)
        .select_from(cost_rollups)
        .outerjoin(tables.jobs, _jobs.id == _rollup.job_id)
        .outerjoin(tables.projects, tables.projects.c.id == _rollup.project_id)
        .where(period.of_rollup())
        .group_by(*cells, _rollup.component)
    )


def _by_machine(period: Period, group: CostGroup) -> Select[Any]:
    instances = tables.instances
    has_job = _entry.job_id.is_not(None)
    key: ColumnElement[Any] = type_coerce(instances.c.pool, Text)
    if group is CostGroup.GPU:
        key = func.coalesce(pools.c.hardware["gpu_name"].astext, literal("(unknown)"))
    cells = (has_job.label("has_job"), key.label("group_key"), key.label("group_name"))
    return (
        select(*cells, _entry.component, func.sum(_entry.amount_microusd).label("amount"))
        .select_from(ledger_entries)
        .join(instances, instances.c.id == _entry.instance_id)
        .outerjoin(pools, pools.c.pool == instances.c.pool)
        .where(period.of_ledger())
        .group_by(*cells, _entry.component)
    )


def _rows(cells: Iterable[Any]) -> tuple[PeriodRow, ...]:
    """Dearest first, equal ones by name; then what no job pays, printed even at 0."""
    names: dict[str, str] = {}
    amounts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    unallocated: dict[str, int] = defaultdict(int)
    for cell in cells:
        if not cell.has_job:
            unallocated[cell.component] += int(cell.amount)
            continue
        key = str(cell.group_key)
        names[key] = str(cell.group_name)
        amounts[key][cell.component] += int(cell.amount)
    rows = [
        PeriodRow(key, names[key], sum(parts.values()), dict(sorted(parts.items())))
        for key, parts in amounts.items()
    ]
    rows.sort(key=lambda row: (-row.amount_microusd, row.name, row.key))
    rest = PeriodRow(
        UNALLOCATED, UNALLOCATED, sum(unallocated.values()), dict(sorted(unallocated.items()))
    )
    return (*rows, rest)


def _sum(session: Session, statement: Select[Any]) -> int:
    return int(session.scalar(statement) or 0)


def _by_day(session: Session, period: Period) -> dict[date, int]:
    """Every day of the period that has a cost."""
    statement = (
        select(_rollup.day, func.sum(_rollup.amount_microusd).label("amount"))
        .where(period.of_rollup())
        .group_by(_rollup.day)
        .order_by(_rollup.day)
    )
    return {row.day: int(row.amount) for row in session.execute(statement)}


def _by_status(session: Session, period: Period) -> dict[CostStatus, int]:
    """How firm the period's money is, by the state of the machine it was spent on."""
    instances = tables.instances.c
    how_firm = case(
        (instances.cost_final_at.is_not(None), literal(CostStatus.FINAL.value)),
        (instances.ended_at.is_not(None), literal(CostStatus.PROVISIONAL.value)),
        else_=literal(CostStatus.ACCRUING.value),
    )
    status = how_firm.label("status")
    statement = (
        select(status, func.sum(_entry.amount_microusd).label("amount"))
        .select_from(ledger_entries)
        .join(tables.instances, instances.id == _entry.instance_id)
        .where(period.of_ledger())
        .group_by(status)
    )
    sums = {row.status: int(row.amount) for row in session.execute(statement)}
    known = (CostStatus.ACCRUING, CostStatus.PROVISIONAL, CostStatus.FINAL)
    return {one: sums.get(one.value, 0) for one in known}
