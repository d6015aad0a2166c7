"""One job's cost: booked cells split over what its machines did, with budget and comparison.

Lives here: from rows to `JobCost`. Not here: the split (`app.domain.billing.cost_statement`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, false, func, or_, select, true
from sqlalchemy.engine import Row

from app.domain.billing.billing import FOLLOWS_TIME, Component, minimum_added
from app.domain.billing.books_check import BooksCheck
from app.domain.billing.cost_statement import (
    Activity,
    CostSpan,
    InstanceCosts,
    OnDemandYardstick,
    job_cost_statement,
    split,
)
from app.domain.billing.ledger import LedgerKey
from app.domain.billing.machine_rating import RatedMachine, machine_rules
from app.domain.billing.machine_timeline import AttemptReach, PhaseStart, machine_timeline
from app.domain.billing.phase_timeline import AttemptSteps
from app.domain.billing.usage_segments import HOUR
from app.domain.lifecycle.entities import Attempt, Budget, Instance, Job
from app.domain.lifecycle.job import TERMINAL_JOB_STATES, JobState
from app.storage.money.cost_figures import (
    BudgetFigures,
    CostStatus,
    InstanceCost,
    Invoices,
    JobCost,
)
from app.storage.money.cost_rows import (
    attempt_reach,
    books_check,
    by_component,
    load_booked,
    rate_machines,
    read_attempts,
)
from app.storage.schema import money_tables, tables
from app.storage.schema.money_tables import (
    books_differences,
    books_passes,
    cost_rollups,
    ledger_entries,
)
from app.storage.session.machine_names import machine_names
from app.storage.session.read_records import read_records, select_records
from trainer.protocol.agent_report import MachinePhase

NEVER_METERED = frozenset({Component.OBJECT_STORAGE, Component.CROSS_ZONE})
"""Components that no price is recorded for."""


def job_cost(connection: Connection, job_id: UUID, invoices: Invoices | None) -> JobCost | None:
    """The report of one job; None when there is no such job."""
    found = read_records(connection, Job, select_records(Job).where(tables.jobs.c.id == job_id))
    if not found:
        return None
    (job,) = found
    instances = _instances(connection, job_id)
    rated, unbilled = rate_machines(connection, instances)
    booked = load_booked(connection, ledger_entries.c.job_id == job_id)
    attempts = read_attempts(connection, job_id)
    ids = [one.id for one in instances]
    phases = load_phases(connection, ids)
    reach = attempt_reach(connection, job, attempts, ids)
    costs = {
        one.id: instance_costs(
            job_id, one, rated[one.id], booked.get(one.id, {}), phases[one.id], reach
        )
        for one in instances
        if one.id in rated
    }
    steps = _attempt_steps(attempts)
    ran = [one for one in instances if one.launched_at is not None]
    names = machine_names(connection, {one.job_id for one in ran if one.job_id is not None})
    rows = tuple(
        _row(names[one.id], one, rated.get(one.id), costs.get(one.id), steps) for one in ran
    )
    own, project = _budgets(connection, job)
    status = _status(job, ran, bills_open=any(one.cost_final_at is None for one in instances))
    if status is CostStatus.FINAL and invoices and _equals_invoices(connection, ran, invoices):
        status = CostStatus.RECONCILED
    untils = [machine.booked_until_at for machine in rated.values()]
    return JobCost(
        job_id=job_id,
        project_id=job.project_id,
        name=job.name,
        ended_at=job.ended_at,
        status=status,
        statement=job_cost_statement(list(costs.values()), steps, _yardstick(job, ran, costs)),
        instances=rows,
        budget=own,
        project_budget=project,
        booked_until_at=max((at for at in untils if at is not None), default=None),
        unbilled=tuple(unbilled),
        not_metered=_not_metered(connection, ran),
        books=_books(connection, job_id, ids),
        billing_speed=max((one.billing_speed for one in ran), default=1),
    )


def waived_microusd(connection: Connection, job_id: UUID) -> int:
    """What clouds have not charged a job for the compute of its machines, as its report has it."""
    waived = _instances(connection, job_id, tables.instances.c.rating["waived"].astext == "true")
    rated, _ = rate_machines(connection, waived)
    return sum(machine.waived_microusd(job_id) for machine in rated.values())


def _books(connection: Connection, job_id: UUID, ids: Sequence[UUID]) -> BooksCheck:
    """How much of the job's entries was compared with the sums that reports are made of."""
    rollup, entry, differs = cost_rollups.c, ledger_entries.c, books_differences.c
    checked_at = connection.scalar(select(books_passes.c.checked_at))
    booked = connection.execute(
        select(
            func.coalesce(func.sum(rollup.amount_microusd), 0),
            func.coalesce(func.sum(rollup.entries), 0),
        ).where(rollup.job_id == job_id)
    ).one()
    # Nobody asks before the first check.
    newer = entry.booked_at > checked_at if checked_at is not None else false()
    since = connection.execute(
        select(
            func.coalesce(func.sum(entry.amount_microusd), 0),
            func.count(),
            func.min(entry.booked_at),
        ).where(entry.job_id == job_id, newer)
    ).one()
    # A rollup's key reads day/project/job/component/kind.
    difference = connection.scalar(
        select(func.sum(differs.rolled_up_microusd - differs.booked_microusd)).where(
            differs.instance_id.in_(ids),
            func.split_part(differs.rollup_key, "/", 3) == str(job_id),
        )
    )
    return books_check(
        checked_at,
        booked=(int(booked[0]), int(booked[1])),
        since=(int(since[0]), int(since[1]), since[2]),
        difference_microusd=int(difference or 0),
    )


def _not_metered(connection: Connection, ran: Sequence[Instance]) -> tuple[str, ...]:
    """Components that are missing in the figures: for all machines, or for some of them."""
    missing = set(NEVER_METERED)
    if any(one.attachments is None for one in ran):
        missing |= {Component.DISK, Component.PUBLIC_IP}
    table = money_tables.transfers
    unpriced = select(table.c.instance_id).where(
        table.c.instance_id.in_([one.id for one in ran]), table.c.microusd_per_gb.is_(None)
    )
    if connection.execute(unpriced.limit(1)).first() is not None:
        missing.add(Component.EGRESS)
    return tuple(name.value for name in Component if name in missing)


def instance_status(instance: Instance) -> CostStatus:
    """How firm a machine's figures are."""
    if instance.cost_final_at is not None:
        return CostStatus.FINAL
    return CostStatus.ACCRUING if instance.ended_at is None else CostStatus.PROVISIONAL


def _instances(
    connection: Connection, job_id: UUID, only: ColumnElement[bool] | None = None
) -> list[Instance]:
    """The job's machines, and those that worked for it, in the order they were asked for."""
    table, spans = tables.instances, money_tables.assignments
    worked = select(spans.c.instance_id).where(spans.c.job_id == job_id)
    statement = (
        select_records(Instance)
        .where(
            or_(table.c.job_id == job_id, table.c.id.in_(worked)), true() if only is None else only
        )
        .order_by(table.c.requested_at, table.c.id)
    )
    return read_records(connection, Instance, statement)


def load_phases(connection: Connection, ids: Sequence[UUID]) -> dict[UUID, list[Row[Any]]]:
    """What agents told of machines, by machine, in order."""
    table = tables.phases
    statement = (
        select(table)
        .where(table.c.instance_id.in_(ids))
        .order_by(table.c.instance_id, table.c.from_at, table.c.session_id, table.c.fact_no)
    )
    found: dict[UUID, list[Row[Any]]] = defaultdict(list)
    for row in connection.execute(statement):
        found[row.instance_id].append(row)
    return found


def instance_costs(
    job_id: UUID | None,
    instance: Instance,
    machine: RatedMachine,
    booked: Mapping[LedgerKey, int],
    phases: Iterable[Row[Any]],
    reach: Mapping[int, AttemptReach],
) -> InstanceCosts:
    """The job's booked cells of one machine, over the usage that the bill gives them; without a
    job, those that nobody pays.
    """
    until = machine.booked_until_at
    if until is None or instance.launched_at is None:
        return InstanceCosts(instance.id, ())
    working: dict[UUID | None, bool] = {
        span.assignment_id: span.attempt_id is not None
        for span in machine.facts.assignments
        if span.job_id == job_id
    }
    if job_id is None:
        working[None] = False  # seconds that nobody was assigned
    standing = dict(booked)
    spans: list[CostSpan] = []
    lines = machine.lines(until, waived=False)
    last = {line.key.component: line.key for line in lines}  # the minimum is charged in these
    added = minimum_added(machine.facts, machine.rules, until)
    for line in lines:
        if line.key.assignment_id not in working:
            continue
        gap = Activity.GANG_WAIT if working[line.key.assignment_id] else Activity.IDLE
        amount = standing.pop(line.key, 0)
        component, is_last = line.key.component, last[line.key.component] == line.key
        minimum = added if is_last and component in FOLLOWS_TIME else timedelta()
        span = CostSpan(component, line.usage_from_at, line.usage_to_at, amount, gap, minimum)
        spans.append(span)
    for key, amount in standing.items():  # booked, and no longer in the bill: about to be corrected
        if amount:
            hour = key.usage_hour_at
            spans.append(CostSpan(key.component, hour, hour + HOUR, amount))
    ended = until if instance.ended_at is None else min(until, instance.ended_at)
    return InstanceCosts(
        instance.id,
        tuple(spans),
        machine_timeline(
            [_phase_start(row, job_id) for row in phases], instance.launched_at, ended, reach
        ),
        machine.segments(until),
        machine.waived_microusd(job_id),
    )


def _phase_start(row: Row[Any], job_id: UUID | None) -> PhaseStart:
    """Steps and fences of another job on the same machine say nothing here."""
    phase = MachinePhase(row.phase)
    if row.job_id != job_id:
        return PhaseStart(phase, row.from_at)
    return PhaseStart(phase, row.from_at, row.fence, row.step)


def _attempt_steps(attempts: Iterable[Attempt]) -> list[AttemptSteps]:
    return [AttemptSteps(one.fence, one.parent_step or 0, one.best_step) for one in attempts]


def _row(
    label: str,
    instance: Instance,
    machine: RatedMachine | None,
    costs: InstanceCosts | None,
    steps: Sequence[AttemptSteps],
) -> InstanceCost:
    launched: datetime = instance.launched_at or instance.requested_at
    booked_until = machine.booked_until_at if machine is not None else None
    activities = {} if costs is None else split(costs, steps)
    return InstanceCost(
        instance_id=instance.id,
        label=label,
        provider=instance.provider,
        provider_instance_id=instance.provider_instance_id,
        pool=None if instance.pool is None else instance.pool.key,
        market=instance.market.value,
        from_at=launched,
        to_at=max(launched, instance.ended_at or booked_until or launched),
        booked_microusd=sum(activities.values()),
        waived_microusd=0 if costs is None else costs.waived_microusd,
        by_activity=activities,
        billing_speed=instance.billing_speed,
        ended_by=None if instance.ended_by is None else instance.ended_by.value,
        status=instance_status(instance),
    )


def _yardstick(
    job: Job, ran: Sequence[Instance], costs: Mapping[UUID, InstanceCosts]
) -> OnDemandYardstick | None:
    """The lowest on-demand price recorded when the job's machines were rented, and one start.

    Recorded prices, and not those of today, so that a final figure stays what it is. None for a
    job that failed: there is no work that on-demand would have done for less or more.
    """
    prices = [
        one.on_demand_microusd_per_hour
        for one in ran
        if one.on_demand_microusd_per_hour is not None
    ]
    rules = next((machine_rules(one) for one in ran if one.cloud is not None), None)
    if not prices or rules is None or job.state is JobState.FAILED:
        return None
    return OnDemandYardstick(
        microusd_per_hour=min(prices),
        start_seconds=_start_seconds(ran, costs),
        node_count=job.node_count,
        billing_speed=rules.billing_speed,
        minimum_seconds=rules.minimum_seconds,
        granularity_seconds=rules.granularity_seconds,
    )


def _start_seconds(ran: Sequence[Instance], costs: Mapping[UUID, InstanceCosts]) -> float:
    """From the cloud's start of a machine to its first step, of the first gang that trained.

    An uninterrupted run pays it once. Of several machines the shortest: the others have waited for
    one that was lost or came late.
    """
    trained: list[tuple[int, float]] = []
    for one in ran:
        spans = costs[one.id].timeline if one.id in costs else ()
        first = next((span for span in spans if span.phase is MachinePhase.TRAIN), None)
        if first is not None and one.launched_at is not None:
            seconds = (first.from_at - one.launched_at).total_seconds()
            trained.append((first.fence or 0, max(0.0, seconds)))
    return min(trained, default=(0, 0.0))[1]


def _budgets(connection: Connection, job: Job) -> tuple[BudgetFigures, BudgetFigures | None]:
    table = tables.budgets
    own_of_project = (table.c.project_id == job.project_id) & table.c.job_id.is_(None)
    statement = select_records(Budget).where(or_(table.c.id == job.budget_id, own_of_project))
    figures = {
        budget.job_id is None: BudgetFigures(
            budget.cap_microusd, budget.spent_microusd, budget.reserved_microusd
        )
        for budget in read_records(connection, Budget, statement.order_by(table.c.id))
    }
    return figures[False], figures.get(True)


def _status(job: Job, ran: Sequence[Instance], *, bills_open: bool) -> CostStatus:
    """As firm as the least firm of its machines, by which a period's report judges, too.

    A job that may rent another machine by itself is accruing.
    """
    resting = job.state in TERMINAL_JOB_STATES or job.state is JobState.PAUSED
    if not resting or any(instance_status(one) is CostStatus.ACCRUING for one in ran):
        return CostStatus.ACCRUING
    return CostStatus.PROVISIONAL if bills_open else CostStatus.FINAL


def _equals_invoices(connection: Connection, ran: Sequence[Instance], invoices: Invoices) -> bool:
    """Whether each machine's whole bill is what its cloud says."""
    ids = [one.id for one in ran]
    booked = load_booked(connection, ledger_entries.c.instance_id.in_(ids))
    for one in ran:
        said = invoices.get(one.provider, {}).get(one.provider_instance_id or "")
        if said is None or by_component(booked.get(one.id, {})) != {
            name: amount for name, amount in said.items() if amount
        }:
            return False
    return True
