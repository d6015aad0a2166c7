"""How often a gang is lost: its machines' hazards together, and when that is worth telling anew.

Lives here: the sum over machines of different ages and markets, and how far a figure may move
before it is told again. Not here: one pool's hazard (`hazard_by_age`), what the interval between
checkpoints becomes (`trainer.protocol.checkpoint_interval`), or where the facts come from.

A notice is counted as a loss: no cloud promises that it comes, nor that it leaves the time to save.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from app.domain.availability.hazard_by_age import AGE_EDGES_SECONDS, usual_hazard_per_hour

FAULTS_PER_HOUR = 0.0002
"""Faults of a rented machine itself, in any market.

Source: Llama Team, The Llama 3 Herd of Models (2024), section 3.3.4: 419 unexpected interruptions
of 16,384 GPUs in 54 days, which is one in about 6,300 hours for a machine of eight.
"""

WARNED_PER_HOUR = 6.0
"""A machine with a rebalance recommendation counts as taken within ten minutes on average.

EC2 says "elevated risk" and no figure; the recommendation may come before the notice or with it
(EC2 User Guide, "EC2 instance rebalance recommendations"). Ours is on the safe side: of a machine
that stays it costs more saves, and nothing else.
"""

TOLD_AGAIN_RATIO = 1.25
"""A hazard that is off by less changes the interval by less than an eighth: it goes as its root."""

PRICE_TOLD_AGAIN_RATIO = 1.01


@dataclass(frozen=True)
class MachineLife:
    """One machine of a gang.

    age_seconds: since its launch. factor: how often its pool takes machines, against the usual;
    None for an on-demand machine. warned: its cloud recommends to leave it.
    """

    age_seconds: float
    factor: float | None
    warned: bool = False


def machine_hazard_per_hour(machine: MachineLife) -> float:
    """Losses of one machine per hour, at its present age."""
    hazard = FAULTS_PER_HOUR
    if machine.factor is not None:
        hazard += usual_hazard_per_hour(max(0.0, machine.age_seconds)) * machine.factor
    return max(hazard, WARNED_PER_HOUR) if machine.warned else hazard


def gang_hazard_per_hour(machines: Iterable[MachineLife]) -> float:
    """Losses of the gang per hour: one lost machine stops all of them, and hazards add up."""
    return sum(machine_hazard_per_hour(machine) for machine in machines)


def seconds_to_next_age(machines: Iterable[MachineLife]) -> float | None:
    """Until the first spot machine's hazard changes with its age; None when all are old."""
    waits = [
        edge - machine.age_seconds
        for machine in machines
        if machine.factor is not None
        for edge in AGE_EDGES_SECONDS
        if edge > machine.age_seconds
    ]
    return min(waits, default=None)


def worth_telling(told: float | None, now: float | None, ratio: float) -> bool:
    """Whether a figure (not negative) has left what was told of it by at least `ratio`.

    Measured from what was told, and not on a fixed grid, so that one that sways about some value
    is told once.
    """
    if told is None or now is None:
        return told is not now
    return now != told and (now >= told * ratio or now * ratio <= told)
