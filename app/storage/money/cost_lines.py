"""A period's costs line by line: each machine's days, components and activities.

The ledger's cells, split over what the machines did as in a job's own report, so that the lines of
a period add up to its report. Not here: sums by group (`period_cost_report`), or how lines are
written (`app.api.fleet.costs`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from fractions import Fraction
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, func, select

from app.domain.billing.billing import BYTES_PER_GB, Component
from app.domain.billing.cost_statement import (
    Activity,
    CostSpan,
    InstanceCosts,
    split_span,
    split_time,
)
from app.domain.billing.ledger import LedgerKey
from app.domain.billing.machine_facts import MachineFacts
from app.domain.billing.machine_rating import RatedMachine
from app.domain.billing.machine_timeline import AttemptReach
from app.domain.billing.phase_timeline import MICROSECOND, AttemptSteps, disjoint, rework_through
from app.domain.billing.usage_segments import US_PER_HOUR, payer_at, utc_hour
from app.domain.lifecycle.entities import Attempt, Instance, Job
from app.domain.market.attachments import HOURS_PER_MONTH
from app.domain.units.errors import InvalidValue
from app.storage.money.cost_figures import CostLine
from app.storage.money.cost_rows import attempt_reach, rate_machines
from app.storage.money.job_cost_report import instance_costs, instance_status, load_phases
from app.storage.money.period_cost_report import ReportPeriod
from app.storage.schema import tables
from app.storage.schema.money_tables import cost_rollups, ledger_entries
from app.storage.session.read_records import (
    columns_of,
    read_records,
    select_records,
    take_record,
)

LINES_MAX = 200_000
MACHINES_PER_PAGE = 200

Booked = dict[tuple[UUID, UUID | None], dict[LedgerKey, int]]
"""What the ledger holds per cell, by machine and the job that pays."""


@dataclass
class _Sum:
    """What is added up in one line."""

    hours: Fraction = field(default_factory=Fraction)
    quantity: Fraction = field(default_factory=Fraction)
    amount_microusd: int = 0

    @property
    def is_told(self) -> bool:
        """Whether a figure with six decimals shows anything of it."""
        return bool(
            self.amount_microusd
            or round(self.hours * 1_000_000)
            or round(self.quantity * 1_000_000)
        )


@dataclass(frozen=True)
class _JobFacts:
    """What is known of a job for the split of its machines' time."""

    job: Job
    project: str
    reach: Mapping[int, AttemptReach]
    through: Mapping[int, int]


def cost_lines(connection: Connection, period: ReportPeriod) -> list[CostLine]:
    """Every line of the period, by day, project, job and machine.

    Raises InvalidValue for a reversed period, and for more than LINES_MAX lines.
    """
    if period.to_day < period.from_day:
        raise InvalidValue("the period ends before it begins; give the earlier day first")
    found: list[CostLine] = []
    ids = _machine_ids(connection, period)
    for place in range(0, len(ids), MACHINES_PER_PAGE):
        found += _lines_of(connection, period, ids[place : place + MACHINES_PER_PAGE])
        if len(found) > LINES_MAX:
            raise InvalidValue(
                f"the report would have more than {LINES_MAX:,} lines; give a shorter period"
            )
    found.sort(
        key=lambda line: (
            line.day,
            line.project or "",
            line.job or "",
            line.provider_instance_id or "",
            list(Component).index(line.component),
            list(Activity).index(line.activity),
        )
    )
    return found


def _machine_ids(connection: Connection, period: ReportPeriod) -> list[UUID]:
    rollup = cost_rollups.c
    days = rollup.day.between(period.from_day, period.to_day)
    statement = select(rollup.instance_id).where(days)
    if period.of_one_project:
        statement = statement.where(rollup.project_id == period.project_id)
    return list(connection.scalars(statement.distinct().order_by(rollup.instance_id)))


def _lines_of(
    connection: Connection, period: ReportPeriod, ids: Sequence[UUID]
) -> Iterator[CostLine]:
    """The lines of some machines."""
    statement = select_records(Instance).where(tables.instances.c.id.in_(ids))
    instances = {one.id: one for one in read_records(connection, Instance, statement)}
    rated, _ = rate_machines(connection, instances.values())
    booked = _booked(connection, period, ids)
    phases = load_phases(connection, ids)
    jobs = _jobs(connection, {job_id for _, job_id in booked if job_id is not None}, ids)
    for (instance_id, job_id), cells in booked.items():
        instance, machine = instances[instance_id], rated.get(instance_id)
        job = None if job_id is None else jobs[job_id]
        costs = _costs(job, instance, machine, cells, phases[instance_id])
        facts = None if machine is None else machine.facts
        sums = _sums(instance, job_id, costs, {} if job is None else job.through, facts)
        for (day, component, activity), one in sums.items():
            if not period.from_day <= day <= period.to_day:
                continue
            if one.is_told:
                yield _line(day, instance, job, component, activity, one)


def _booked(connection: Connection, period: ReportPeriod, ids: Sequence[UUID]) -> Booked:
    entry = ledger_entries.c
    cell = (
        entry.instance_id,
        entry.job_id,
        entry.component,
        entry.assignment_id,
        entry.usage_hour_at,
    )
    statement = (
        select(*cell, func.sum(entry.amount_microusd).label("amount"))
        .where(entry.instance_id.in_(ids))
        .group_by(*cell)
        .order_by(*cell)
    )
    if period.of_one_project:
        statement = statement.where(entry.project_id == period.project_id)
    found: Booked = defaultdict(dict)
    for row in connection.execute(statement):
        component = Component(row.component)
        key = LedgerKey(row.instance_id, component, row.assignment_id, row.usage_hour_at)
        found[row.instance_id, row.job_id][key] = int(row.amount)
    return found


def _jobs(connection: Connection, job_ids: set[UUID], ids: Sequence[UUID]) -> dict[UUID, _JobFacts]:
    attempts: dict[UUID, list[Attempt]] = defaultdict(list)
    table = tables.attempts.c
    statement = select_records(Attempt).where(table.job_id.in_(job_ids)).order_by(table.fence)
    for one in read_records(connection, Attempt, statement):
        attempts[one.job_id].append(one)
    named = (
        select(*columns_of(Job), tables.projects.c.name)
        .join(tables.projects, tables.projects.c.id == tables.jobs.c.project_id)
        .where(tables.jobs.c.id.in_(job_ids))
    )
    found = {}
    for row in connection.execute(named):
        values = iter(row)
        job, project = take_record(Job, values), next(values)
        own = attempts[job.id]
        steps = [AttemptSteps(one.fence, one.parent_step or 0, one.best_step) for one in own]
        reach = attempt_reach(connection, job, own, ids)
        found[job.id] = _JobFacts(job, project, reach, rework_through(steps))
    return found


def _costs(
    job: _JobFacts | None,
    instance: Instance,
    machine: RatedMachine | None,
    cells: Mapping[LedgerKey, int],
    phases: Iterable[Any],
) -> InstanceCosts:
    """The cells that are booked, over what the machine did."""
    if machine is None:  # no price is known any more for what was booked once
        hours = [(key, key.usage_hour_at, amount) for key, amount in cells.items()]
        spans = [CostSpan(key.component, at, at, amount) for key, at, amount in hours]
        return InstanceCosts(instance.id, tuple(spans))
    job_id = None if job is None else job.job.id
    return instance_costs(
        job_id, instance, machine, cells, phases, {} if job is None else job.reach
    )


def _sums(
    instance: Instance,
    job_id: UUID | None,
    costs: InstanceCosts,
    through: Mapping[int, int],
    facts: MachineFacts | None,
) -> dict[tuple[date, Component, Activity], _Sum]:
    timeline, found = disjoint(costs.timeline), defaultdict[Any, _Sum](_Sum)
    for span in costs.spans:
        day, component = utc_hour(span.from_at).date(), span.component
        amounts = split_span(span, timeline, costs.prices, through)
        for activity, amount in amounts.items():
            found[day, component, activity].amount_microusd += amount
        for activity, length in split_time(span, timeline, through).items():
            one = found[day, component, activity]
            hours = Fraction(length // MICROSECOND * instance.billing_speed, US_PER_HOUR)
            one.hours += hours
            one.quantity += hours * _per_hour(component, facts)
        if component is Component.EGRESS and facts is not None:
            moved = sum(_bytes(facts, job_id, span.from_at, span.to_at))
            found[day, component, Activity.EGRESS].quantity += Fraction(moved, BYTES_PER_GB)
    return found


def _per_hour(component: Component, facts: MachineFacts | None) -> Fraction:
    """Units of a component that an hour of the machine takes."""
    if component is not Component.DISK:
        return Fraction(1)
    disk = None if facts is None else facts.disk
    return Fraction(0) if disk is None else Fraction(disk.size_gb, HOURS_PER_MONTH)


def _bytes(
    facts: MachineFacts, job_id: UUID | None, from_at: datetime, to_at: datetime
) -> Iterator[int]:
    payers = {span.assignment_id: span.job_id for span in facts.assignments}
    for one in facts.transfers:
        at = max(one.at, facts.started_at or one.at)
        at = at if facts.ended_at is None else min(at, facts.ended_at)
        payer = payer_at(facts, at)
        if from_at <= at <= to_at and (None if payer is None else payers[payer]) == job_id:
            yield one.size_bytes


def _line(
    day: date,
    instance: Instance,
    job: _JobFacts | None,
    component: Component,
    activity: Activity,
    one: _Sum,
) -> CostLine:
    return CostLine(
        day=day,
        job=None if job is None else job.job.name,
        project=None if job is None else job.project,
        labels={} if job is None else job.job.spec.get("labels") or {},
        provider=instance.provider,
        pool=instance.pool,
        provider_instance_id=instance.provider_instance_id,
        component=component,
        activity=activity,
        hours=one.hours,
        quantity=one.quantity,
        amount_microusd=one.amount_microusd,
        status=instance_status(instance),
    )
