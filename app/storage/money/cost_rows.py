"""Rows that cost reports are made of, read in few statements for many machines at once.

Lives here: loading alone. Not here: what the reports say (`job_cost_report`,
`period_cost_report`, `cost_verification`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, func, select

from app.domain.billing.billing import Component
from app.domain.billing.books_check import BooksCheck
from app.domain.billing.ledger import LedgerKey
from app.domain.billing.machine_facts import Transfer
from app.domain.billing.machine_rating import PointRow, RatedMachine
from app.domain.billing.machine_timeline import AttemptReach
from app.domain.lifecycle.attempt import LIVE_ATTEMPT_STATES, AttemptState
from app.domain.lifecycle.entities import Assignment, Attempt, Instance, Job
from app.domain.lifecycle.job import JobState
from app.domain.market.offer import Pool
from app.domain.market.price_book import UnknownPrice
from app.storage.market.offer_repository import PRICE_POINTS_SINCE
from app.storage.market.traffic_repository import TRANSFER_COLUMNS
from app.storage.schema import money_tables, tables
from app.storage.schema.money_tables import ledger_entries
from app.storage.session.read_records import read_records, select_records


def load_assignments(connection: Connection, ids: Sequence[UUID]) -> dict[UUID, list[Assignment]]:
    """Assignments by instance, each by start."""
    table = money_tables.assignments
    statement = (
        select_records(Assignment)
        .where(table.c.instance_id.in_(ids))
        .order_by(table.c.instance_id, table.c.from_at, table.c.id)
    )
    found: dict[UUID, list[Assignment]] = defaultdict(list)
    for span in read_records(connection, Assignment, statement):
        found[span.instance_id].append(span)
    return found


def read_attempts(connection: Connection, job_id: UUID) -> list[Attempt]:
    """A job's attempts, by fence."""
    table = tables.attempts.c
    statement = select_records(Attempt).where(table.job_id == job_id).order_by(table.fence)
    return read_records(connection, Attempt, statement)


def load_transfers(connection: Connection, ids: Sequence[UUID]) -> dict[UUID, list[Transfer]]:
    """What machines brought at a price, by instance and time."""
    table = money_tables.transfers
    statement = (
        select(table.c.instance_id, *TRANSFER_COLUMNS)
        .where(table.c.instance_id.in_(ids), table.c.microusd_per_gb.is_not(None))
        .order_by(table.c.instance_id, table.c.at, table.c.fence)
    )
    found: dict[UUID, list[Transfer]] = defaultdict(list)
    for instance_id, *fields in connection.execute(statement):
        found[instance_id].append(Transfer(*fields))
    return found


def load_booked(
    connection: Connection, which: ColumnElement[bool]
) -> dict[UUID, dict[LedgerKey, int]]:
    """What the ledger holds per cell, by instance, of the entries that meet a condition."""
    entry = ledger_entries.c
    cell = (entry.instance_id, entry.component, entry.assignment_id, entry.usage_hour_at)
    statement = (
        select(*cell, func.sum(entry.amount_microusd).label("amount"))
        .where(which)
        .group_by(*cell)
        .order_by(*cell)
    )
    found: dict[UUID, dict[LedgerKey, int]] = defaultdict(dict)
    for row in connection.execute(statement):
        key = LedgerKey(
            row.instance_id, Component(row.component), row.assignment_id, row.usage_hour_at
        )
        found[row.instance_id][key] = int(row.amount)
    return found


def rate_machines(
    connection: Connection, instances: Iterable[Instance]
) -> tuple[dict[UUID, RatedMachine], list[UUID]]:
    """The inputs of each bill, and the machines that have none yet: no price, or no rule."""
    launched = [one for one in instances if one.launched_at is not None]
    spans = load_assignments(connection, [one.id for one in launched])
    since: dict[Pool, datetime] = {}
    for one in launched:
        if one.pool is not None and one.launched_at is not None:
            since[one.pool] = min(since.get(one.pool, one.launched_at), one.launched_at)
    points: Mapping[Pool, list[PointRow]] = {
        pool: [
            (row[0], row[1], row[2], row[3])
            for row in connection.execute(PRICE_POINTS_SINCE, {"of_pool": pool, "since": at})
        ]
        for pool, at in sorted(since.items())
    }
    brought = load_transfers(connection, [one.id for one in launched])
    rated: dict[UUID, RatedMachine] = {}
    unbilled: list[UUID] = []
    for one in launched:
        try:
            machine = RatedMachine.of(
                one,
                spans.get(one.id, []),
                [] if one.pool is None else points[one.pool],
                brought.get(one.id, []),
            )
            machine.segments(machine.booked_until_at or machine.facts.started_at or one.updated_at)
        except (UnknownPrice, LookupError):
            unbilled.append(one.id)
            continue
        rated[one.id] = machine
    return rated, unbilled


def attempt_reach(
    connection: Connection, job: Job, attempts: Iterable[Attempt], ids: Sequence[UUID]
) -> dict[int, AttemptReach]:
    """How far each attempt came, by fence, and how long its trainer took to start.

    ids: of machines, among them the job's; of the attempt that runs, those know how it started.
    Others are left out, as their fences count the attempts of other jobs.
    """
    start_ups: dict[int, tuple[int | None, float | None]] = {}
    # Agents tell when the bundled trainer has made its first step: its phases begin there.
    if job.spec.get("trainer") is None:
        table, spans = tables.contacts.c, money_tables.assignments.c
        own = select(spans.instance_id).where(spans.job_id == job.id)
        told = select(table.fence, table.first_step, table.start_up_seconds).where(
            table.instance_id.in_(ids),
            table.instance_id.in_(own),
            table.start_up_seconds.is_not(None),
        )
        told = told.order_by(table.fence, table.last_step.nulls_first(), table.instance_id)
        start_ups = {row[0]: (row[1], row[2]) for row in connection.execute(told)}
    # No attempt continues a failed job: what it had not saved by then was paid for nothing.
    kept_step = job.committed_step if job.state is JobState.FAILED else None
    found = {}
    for one in attempts:
        first_step, start_up = start_ups.get(one.fence, (None, None))
        # Of a command without steps it is a guess by its saves, which no bill rests on.
        if one.first_step is not None and job.spec.get("trainer") is None:
            first_step, start_up = one.first_step, one.start_up_seconds
        found[one.fence] = AttemptReach(
            one.parent_step or 0, one.best_step, first_step, start_up, _is_lost(one), kept_step
        )
    return found


def _is_lost(attempt: Attempt) -> bool:
    """Whether an ended attempt has left nothing: no checkpoint, and not the word of one step."""
    if attempt.state in LIVE_ATTEMPT_STATES or attempt.state is AttemptState.SUCCEEDED:
        return False
    stepped = attempt.first_step is not None or attempt.best_step > (attempt.parent_step or 0)
    return not stepped and attempt.committed_at is None


def books_check(
    checked_at: datetime | None,
    *,
    booked: tuple[int, int],
    since: tuple[int, int, datetime | None],
    difference_microusd: int,
) -> BooksCheck:
    """The check of a report; booked: amount and entries of all of it, since: of what was booked
    after `checked_at`, and when the first of that was booked.
    """
    if checked_at is None:
        since = (*booked, None)
    return BooksCheck(
        checked_at,
        checked_microusd=booked[0] - since[0],
        checked_entries=booked[1] - since[1],
        unchecked_microusd=since[0],
        unchecked_entries=since[1],
        difference_microusd=difference_microusd,
        unchecked_from_at=since[2],
    )


def by_component(cells: Mapping[LedgerKey, int]) -> dict[str, int]:
    """Sums by component's name; components that come to nothing are left out."""
    sums: dict[str, int] = defaultdict(int)
    for key, amount in cells.items():
        sums[key.component.value] += amount
    return {name: amount for name, amount in sums.items() if amount}
