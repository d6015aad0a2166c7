"""Every machine's bill made again from raw facts and prices, and every sum compared with another.

Lives here: the comparisons. Not here: putting anything right (`accrue_costs` does, as long as a
bill is not final).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Select, func, select, true

from app.domain.billing.ledger import LedgerKey
from app.domain.billing.machine_rating import RatedMachine
from app.domain.lifecycle.entities import Instance
from app.storage.money.cost_figures import Difference, Invoices, Verification
from app.storage.money.cost_rows import by_component, load_booked, rate_machines
from app.storage.schema import tables
from app.storage.schema.money_tables import cost_rollups, ledger_entries
from app.storage.session.read_records import read_records, select_records

PAGE = 500
_instances, _entry, _rollup = tables.instances.c, ledger_entries.c, cost_rollups.c


@dataclass(frozen=True)
class VerificationScope:
    """What is compared: one job, else one project, else the whole deployment."""

    job_id: UUID | None = None
    project_id: UUID | None = None

    @property
    def everything(self) -> bool:
        """Whether nothing is left out."""
        return self.job_id is None and self.project_id is None

    def machines(self) -> ColumnElement[bool]:
        """The machines of its jobs."""
        if self.job_id is not None:
            return _instances.job_id == self.job_id
        if self.project_id is None:
            return true()
        jobs = tables.jobs.c
        return _instances.job_id.in_(select(jobs.id).where(jobs.project_id == self.project_id))

    def payers(self, columns: Any) -> ColumnElement[bool]:
        """Its rows of a table with the columns job_id and project_id."""
        own: ColumnElement[bool] = true()
        if self.job_id is not None:
            own = columns.job_id == self.job_id
        elif self.project_id is not None:
            own = columns.project_id == self.project_id
        return own


def verify(
    connection: Connection, invoices: Invoices | None, scope: VerificationScope
) -> Verification:
    """Compare bills with the ledger, the ledger with rollup and budgets, and with invoices.

    A machine that runs is compared as of its last closing, unless something was learned since;
    with a cloud's own bill only machines that are booked to their end are compared.
    """
    differences: list[Difference] = []
    unbilled: list[UUID] = []
    machines = invoiced = revised = open_ = without_invoice = total = 0
    for page in _pages(connection, scope):
        rated, without = rate_machines(connection, page)
        unbilled += without
        booked = load_booked(connection, _entry.instance_id.in_([one.id for one in page]))
        for one in page:
            machines += 1
            cells = booked.get(one.id, {})
            total += sum(cells.values())
            machine = rated.get(one.id)
            if machine is not None and one.cost_final_at is None and machine.is_revised():
                revised += 1
                continue
            differences += _against_bill(one, machine, cells)
            said = _invoice_of(one, machine, invoices or {})
            if said is not None:
                invoiced += 1
                differences += _against_invoice(one, cells, said)
            elif one.provider in (invoices or {}):
                open_ += 1
            else:
                without_invoice += 1
    differences += _against_rollup(connection, scope)
    differences += _against_budgets(connection, scope)
    if scope.everything:
        differences += _unknown_machines(connection, invoices or {})
    return Verification(
        machines,
        invoiced,
        revised,
        open_,
        without_invoice,
        total,
        tuple(differences),
        tuple(unbilled),
    )


def _pages(connection: Connection, scope: VerificationScope) -> Iterator[list[Instance]]:
    """Machines that ever ran, by id, a bounded number at a time."""
    after: UUID | None = None
    while True:
        beyond = true() if after is None else _instances.id > after
        statement = (
            select_records(Instance)
            .where(_instances.launched_at.is_not(None), scope.machines(), beyond)
            .order_by(_instances.id)
            .limit(PAGE)
        )
        page = read_records(connection, Instance, statement)
        if not page:
            return
        yield page
        after = page[-1].id


def _against_bill(
    instance: Instance, machine: RatedMachine | None, booked: Mapping[LedgerKey, int]
) -> list[Difference]:
    """The ledger's cells against the bill's, told by component."""
    expected: dict[LedgerKey, int] = {}
    if machine is not None and machine.booked_until_at is not None:
        lines = machine.lines(machine.booked_until_at)
        expected = {line.key: line.amount_microusd for line in lines}
    wrong = {
        key.component
        for key in {**booked, **expected}
        if booked.get(key, 0) != expected.get(key, 0)
    }
    return [
        Difference(
            "the ledger differs from the bill recalculated from facts and prices",
            instance.id,
            component.value,
            sum(amount for key, amount in booked.items() if key.component is component),
            sum(amount for key, amount in expected.items() if key.component is component),
        )
        for component in sorted(wrong)
    ]


def _invoice_of(
    instance: Instance, machine: RatedMachine | None, invoices: Invoices
) -> Mapping[str, int] | None:
    """The cloud's own bill of a machine that is booked to its end; None when not to be compared."""
    bills = invoices.get(instance.provider)
    ended = instance.ended_at
    until = None if machine is None else machine.booked_until_at
    if bills is None or ended is None or until is None or until < ended:
        return None
    return bills.get(instance.provider_instance_id or "", {})


def _against_invoice(
    instance: Instance, booked: Mapping[LedgerKey, int], said: Mapping[str, int]
) -> list[Difference]:
    ours = by_component(booked)
    return [
        Difference(
            f"the ledger differs from the bill of {instance.provider}",
            instance.id,
            component,
            ours.get(component, 0),
            said.get(component, 0),
        )
        for component in sorted({*ours, *said})
        if ours.get(component, 0) != said.get(component, 0)
    ]


def _unknown_machines(connection: Connection, invoices: Invoices) -> list[Difference]:
    """Machines that a cloud charges for and that have no row."""
    found: list[Difference] = []
    for provider, bills in sorted(invoices.items()):
        statement = select(_instances.provider_instance_id).where(_instances.provider == provider)
        known = set(connection.scalars(statement))
        for machine_id, said in sorted(bills.items()):
            if machine_id not in known and any(said.values()):
                what = f"{provider} charges for machine {machine_id}, which is not in the database"
                found.append(Difference(what, None, None, 0, sum(said.values())))
    return found


def _against_rollup(connection: Connection, scope: VerificationScope) -> list[Difference]:
    rolled = _sum(
        connection, select(func.sum(_rollup.amount_microusd)).where(scope.payers(_rollup))
    )
    booked = _sum(connection, select(func.sum(_entry.amount_microusd)).where(scope.payers(_entry)))
    if rolled == booked:
        return []
    return [Difference("the ledger differs from its rollup", None, None, booked, rolled)]


def _against_budgets(connection: Connection, scope: VerificationScope) -> list[Difference]:
    """What budgets say is spent, against the entries they count."""
    budget = tables.budgets.c
    of_job = _sums(connection, _entry.job_id, scope)
    of_project = _sums(connection, _entry.project_id, scope)
    statement: Select[Any] = (
        select(budget.id, budget.project_id, budget.job_id, budget.spent_microusd)
        .where(scope.payers(budget))
        .order_by(budget.id)
    )
    found: list[Difference] = []
    for row in connection.execute(statement):
        own = row.job_id is not None
        booked = of_job.get(row.job_id, 0) if own else of_project.get(row.project_id, 0)
        if booked != row.spent_microusd:
            whose = f"job {row.job_id}" if own else f"project {row.project_id}"
            what = f"the ledger differs from what the budget of {whose} says is spent"
            found.append(Difference(what, None, None, booked, row.spent_microusd))
    return found


def _sums(
    connection: Connection, column: ColumnElement[Any], scope: VerificationScope
) -> dict[UUID, int]:
    statement = (
        select(column.label("owner"), func.sum(_entry.amount_microusd).label("amount"))
        .where(column.is_not(None), scope.payers(_entry))
        .group_by(column)
    )
    found: dict[UUID, int] = defaultdict(int)
    for row in connection.execute(statement):
        found[row.owner] = int(row.amount)
    return found


def _sum(connection: Connection, statement: Select[Any]) -> int:
    return int(connection.scalar(statement) or 0)
