"""Costs of whole UTC days by project, job, label, pool or GPU, from the rollup alone.

The rollup is written in the ledger's own transaction, and a controller compares the two machine by
machine (`money.check_books`): what it found belongs to the report, and when. Not here:
one job's report, and the comparison that is made when asked for (`cost_verification`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    Text,
    bindparam,
    case,
    func,
    literal,
    or_,
    select,
    text,
    tuple_,
    type_coerce,
)

from app.domain.units.errors import InvalidValue
from app.storage.money.bill_due import is_unpriced
from app.storage.money.cost_figures import (
    NO_LABEL,
    UNALLOCATED,
    CostGroup,
    CostStatus,
    PeriodCosts,
    PeriodRow,
)
from app.storage.money.cost_rows import books_check
from app.storage.schema import tables
from app.storage.schema.money_tables import (
    books_differences,
    books_passes,
    cost_rollups,
    pools,
)

_rollup, _jobs = cost_rollups.c, tables.jobs.c
_UNBILLED_SHOWN_MAX = 100
_NEW = """
SELECT coalesce(sum(amount_microusd), 0), count(*), min(booked_at) FROM ledger_entries
WHERE {whose} AND booked_at > :checked_at AND usage_hour_at >= :from_at AND usage_hour_at < :to_at
"""
# Job by job, so that each is found through its index, whatever the planner expects.
_NEW_OF_JOBS = text(
    "SELECT coalesce(sum(amount), 0), coalesce(sum(entries), 0), min(first_at) "
    "FROM unnest(CAST(:jobs AS uuid[])) AS open_jobs (id) CROSS JOIN LATERAL ("
    + _NEW.format(whose="job_id = open_jobs.id")
    + ") AS booked (amount, entries, first_at)"
)
_NEW_OF_NOBODY = text(_NEW.format(whose="job_id IS NULL"))


@dataclass(frozen=True)
class ReportPeriod:
    """Whole UTC days, both included, of one project or of all."""

    from_day: date
    to_day: date
    project_id: UUID | None

    @property
    def of_one_project(self) -> bool:
        """Whether it is one project's."""
        return self.project_id is not None


def _within(rows: Any, one_project: bool) -> ColumnElement[bool]:
    """The period's rows of a table with the columns day and project_id."""
    days: ColumnElement[bool] = rows.day.between(bindparam("from_day"), bindparam("to_day"))
    return days & (rows.project_id == bindparam("project_id")) if one_project else days


def period_costs(
    connection: Connection, period: ReportPeriod, group: CostGroup, label: str | None
) -> PeriodCosts:
    """The report. Raises InvalidValue for a reversed period, or `label` without a name."""
    if period.to_day < period.from_day:
        raise InvalidValue("the period ends before it begins; give the earlier day first")
    if group is CostGroup.LABEL and not label:
        raise InvalidValue("grouping by label needs the label's name, like label=team")
    given = vars(period)
    checked_at = connection.scalar(select(books_passes.c.checked_at))
    sums = connection.execute(
        _sums(group, period.of_one_project), {**given, "label": label, "checked_at": checked_at}
    ).all()
    rows = _rows(row for row in sums if row.is_group)
    of_days = [row for row in sums if not row.is_group]
    by_day, by_status = _by_day_and_status(of_days)
    difference, unbilled = connection.execute(_books(period.of_one_project), given).one()
    return PeriodCosts(
        from_day=period.from_day,
        to_day=period.to_day,
        group=group,
        rows=rows,
        total_microusd=sum(row.amount_microusd for row in rows),
        books=books_check(
            checked_at,
            booked=(sum(by_day.values()), sum(int(row.entries) for row in of_days)),
            since=_booked_since(connection, period, checked_at, of_days),
            difference_microusd=int(difference or 0),
        ),
        by_day=by_day,
        by_status=by_status,
        billing_speed=max((int(row.billing_speed) for row in of_days), default=1),
        unbilled=tuple(unbilled),
    )


# Made once: making them takes as long as the database takes to answer.
@cache
def _sums(group: CostGroup, one_project: bool) -> Select[Any]:
    """One look at the period's rows gives two kinds of sums: (has a job?, key, name, component,
    amount) where `is_group`, else (day, status, amount, entries, the fastest billing, jobs that
    may have booked something since `checked_at`).
    """
    instances = tables.instances.c
    status = case(
        (instances.cost_final_at.is_not(None), literal(CostStatus.FINAL.value)),
        (instances.ended_at.is_not(None), literal(CostStatus.PROVISIONAL.value)),
        else_=literal(CostStatus.ACCRUING.value),
    )
    key, name = _key_and_name(group)
    cell = (
        select(
            _rollup.job_id.is_not(None).label("has_job"),
            key.label("group_key"),
            name.label("group_name"),
            _rollup.component,
            _rollup.day,
            status.label("status"),
            _rollup.amount_microusd,
            _rollup.entries,
            _rollup.job_id,
            instances.billing_speed,
            or_(
                instances.cost_final_at.is_(None),
                instances.cost_final_at >= bindparam("checked_at"),
            ).label("is_open"),
        )
        .select_from(cost_rollups)
        .join(tables.instances, instances.id == _rollup.instance_id)
        .outerjoin(tables.jobs, _jobs.id == _rollup.job_id)
        .outerjoin(tables.projects, tables.projects.c.id == _rollup.project_id)
        .outerjoin(pools, pools.c.pool == instances.pool)
        .where(_within(_rollup, one_project))
        .subquery("cell")
        .c
    )
    of_group = (cell.has_job, cell.group_key, cell.group_name, cell.component)
    of_day = (cell.day, cell.status)
    return select(
        (func.grouping(cell.day) == 1).label("is_group"),
        *of_group,
        *of_day,
        func.sum(cell.amount_microusd).label("amount"),
        func.sum(cell.entries).label("entries"),
        func.max(cell.billing_speed).label("billing_speed"),
        func.array_agg(cell.job_id).filter(cell.is_open & cell.has_job).label("open_jobs"),
    ).group_by(func.grouping_sets(tuple_(*of_group), tuple_(*of_day)))


def _key_and_name(group: CostGroup) -> tuple[ColumnElement[Any], ColumnElement[Any]]:
    key: ColumnElement[Any]
    match group:
        case CostGroup.PROJECT:
            return _rollup.project_id, tables.projects.c.name
        case CostGroup.JOB:
            return _rollup.job_id, _jobs.name
        case CostGroup.LABEL:
            key = func.coalesce(
                _jobs.spec["labels"][bindparam("label", type_=Text)].astext, literal(NO_LABEL)
            )
        case CostGroup.POOL:
            key = type_coerce(tables.instances.c.pool, Text)
        case CostGroup.GPU:
            key = func.coalesce(pools.c.hardware["gpu_name"].astext, literal("(unknown)"))
    return key, key


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


def _by_day_and_status(sums: Iterable[Any]) -> tuple[dict[date, int], dict[CostStatus, int]]:
    """Every day of the period that has a cost, in order; and how firm the period's money is, by the
    state of the machine it was spent on.
    """
    by_day: dict[date, int] = defaultdict(int)
    known = (CostStatus.ACCRUING, CostStatus.PROVISIONAL, CostStatus.FINAL)
    by_status = dict.fromkeys(known, 0)
    for row in sums:
        by_day[row.day] += int(row.amount)
        by_status[CostStatus(row.status)] += int(row.amount)
    return dict(sorted(by_day.items())), by_status


def _booked_since(
    connection: Connection,
    period: ReportPeriod,
    checked_at: datetime | None,
    of_days: Iterable[Any],
) -> tuple[int, int, datetime | None]:
    """Amount, number and first booking of the period's entries that were booked after the last
    check.

    Only machines whose bill is open, or was closed since, can have any; their jobs' newest entries
    are read through an index. Before the first check nobody asks.
    """
    if checked_at is None:
        return 0, 0, None
    jobs = sorted({job for row in of_days for job in row.open_jobs or ()}, key=str)
    given = {
        "checked_at": checked_at,
        "from_at": datetime.combine(period.from_day, time(), UTC),
        "to_at": datetime.combine(period.to_day + timedelta(days=1), time(), UTC),
    }
    new = [connection.execute(_NEW_OF_JOBS, {**given, "jobs": jobs}).one()]
    if not period.of_one_project:
        new.append(connection.execute(_NEW_OF_NOBODY, given).one())
    first_at = min((at for _, _, at in new if at is not None), default=None)
    return sum(int(one[0]) for one in new), sum(int(one[1]) for one in new), first_at


@cache
def _books(one_project: bool) -> Select[Any]:
    """What the rollup has more than the ledger in the period; and machines, of the project if one
    is asked for, that no price or rule is known for.
    """
    found, instances = books_differences.c, tables.instances.c
    difference = (
        select(func.sum(found.rolled_up_microusd - found.booked_microusd))
        .where(_within(found, one_project))
        .scalar_subquery()
    )
    unpriced = select(instances.id).where(is_unpriced())
    if one_project:
        own = select(_jobs.id).where(_jobs.project_id == bindparam("project_id"))
        unpriced = unpriced.where(instances.job_id.in_(own))
    unbilled = func.array(
        unpriced.order_by(instances.id).limit(_UNBILLED_SHOWN_MAX).scalar_subquery()
    )
    return select(difference, unbilled)
