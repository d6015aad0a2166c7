"""What must hold after every schedule of faults, whatever went wrong in it.

Here: the rules, each with its own sentence. Not here: the schedule (`fault_schedule`).
"""

from __future__ import annotations

from collections import Counter

from sqlalchemy import func, select

from app.domain.billing.machine_facts import ESTIMATED_SOURCES
from app.storage.schema import tables
from app.storage.schema.money_tables import ledger_entries
from tests.support.faults.fault_schedule import FaultRun


def check(run: FaultRun) -> None:
    """Raises AssertionError with the seed and its whole story."""
    story = run.describe()
    living, forgotten = run.cloud.living(), run.cloud.forgotten()
    assert not living, f"the cloud holds machines that no live row owns: {living}\n{story}"
    assert not forgotten, f"the cloud holds disks of no machine: {forgotten}\n{story}"
    twice = {token: times for token, times in run.cloud.launches().items() if times != 1}
    assert not twice, f"a token has launched more than once: {twice}\n{story}"
    wanted = {row.client_token: row.count for row in run.rows(tables.launches)}
    many = {
        token: number
        for token, number in run.cloud.started().items()
        if number > wanted.get(token, 0)
    }
    assert not many, f"a token has more machines than were asked for: {many}\n{story}"
    unequal = differences(run)
    assert not unequal, f"ledger and bill differ (machine: booked, owed): {unequal}\n{story}"


def differences(run: FaultRun) -> dict[str, tuple[int, int]]:
    """Machines whose booked cost is not what the cloud charges, where their times are its."""
    booked, guessed = booked_by_machine(run), guessed_machines(run)
    owed = run.cloud.bill()
    return {
        machine: (booked[machine], owed.get(machine, 0))
        for machine in sorted({*booked, *owed})
        if machine not in guessed and booked[machine] != owed.get(machine, 0)
    }


def booked_by_machine(run: FaultRun) -> Counter[str]:
    """Micro-USD in the ledger, by the cloud's id of the machine."""
    total = func.sum(ledger_entries.c.amount_microusd)
    found = (
        select(tables.instances.c.provider_instance_id, total)
        .join(ledger_entries, ledger_entries.c.instance_id == tables.instances.c.id)
        .group_by(tables.instances.c.provider_instance_id)
    )
    with run.engine.connect() as connection:
        return Counter({row[0]: int(row[1]) for row in connection.execute(found)})


def guessed_machines(run: FaultRun) -> set[str]:
    """Machines of which the cloud gave no time of its own for their end."""
    return {
        row.provider_instance_id
        for row in run.rows(tables.instances)
        if row.ended_source in ESTIMATED_SOURCES
    }
