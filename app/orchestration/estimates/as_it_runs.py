"""What is left of a job as it runs now: its end, and what it costs until then.

Lives here: the figures that its page, `show`, `explain` and the API tell of the present. Not here:
the work left (`estimate_remaining`), or what a decision expected of a pool (`placement_reasons`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from math import ceil

from app.domain.lifecycle.entities import Instance
from app.domain.lifecycle.instance import InstanceState
from app.domain.placement.expected_cost import steady_microusd
from app.domain.spec.job_spec import JobSpec
from app.orchestration.estimates.estimate_remaining import WorkLeft, expected_end, work_left
from app.storage.reports.job_facts import JobFacts, MachineStatus

_STAY = (InstanceState.LAUNCHED, InstanceState.REGISTERED)
_RENTED = (InstanceState.LAUNCHED, InstanceState.REGISTERED, InstanceState.INTERRUPTING)


@dataclass(frozen=True)
class AsItRuns:
    """The rest of a job that trains, if nothing interrupts it; interruptions are not counted.

    pools: keys of those that its machines are in. ends_at, remaining_seconds: as its measured pace
    or its estimate says. microusd_per_hour: of all that it pays for now. remaining_microusd: for
    the machines that it goes on with, at their prices of now.
    """

    pools: tuple[str, ...]
    microusd_per_hour: int
    ends_at: datetime
    remaining_seconds: int
    remaining_microusd: int


def left_of_facts(facts: JobFacts, spec: JobSpec, now: datetime) -> WorkLeft:
    """The work left by the newest reports of the machines that the job has."""
    contacts = [machine.contact for machine in facts.machines if machine.contact is not None]
    return work_left(facts.job, spec, facts.attempt, contacts, now)


def as_it_runs(facts: JobFacts, left: WorkLeft, now: datetime) -> AsItRuns | None:
    """None for a job that does not train, and while neither pace nor estimate tells its end."""
    ends_at = expected_end(facts.job, left, now)
    if ends_at is None:
        return None
    seconds = max(0, ceil((ends_at - now).total_seconds()))
    return AsItRuns(
        pools=tuple(
            sorted(
                {
                    machine.instance.pool.key
                    for machine in facts.machines
                    if machine.instance.pool is not None and is_rented(machine.instance)
                }
            )
        ),
        microusd_per_hour=facts.microusd_per_hour,
        ends_at=ends_at,
        remaining_seconds=seconds,
        remaining_microusd=steady_microusd(
            going_on_microusd_per_hour(facts.machines, facts.job.node_count), seconds
        ),
    )


def going_on_microusd_per_hour(machines: Sequence[MachineStatus], count: int) -> int:
    """Of the `count` machines that a job goes on with, those that stay before those that leave.

    One that the cloud takes is replaced, not paid for to the end: its price stands for the
    replacement's while that is not there yet.
    """
    billed = [one for one in machines if one.is_billed]
    kept = sorted(billed, key=lambda one: one.instance.state not in _STAY)[:count]
    return sum((one.price_microusd_per_hour or 0) * one.instance.billing_speed for one in kept)


def is_rented(machine: Instance) -> bool:
    """Whether the job has the machine now: it is started, and not given back."""
    return machine.launched_at is not None and machine.state in _RENTED
