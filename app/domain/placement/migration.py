"""Whether a gang that trains had better train elsewhere: only where the move clearly repays.

Lives here: what staying and moving are expected to cost, and the decision. Not here: a pool's
hazard (`gang_hazard`, `hazard_by_age`), how a gang moves (`gang.move_gang`), or the choice
of a pool for machines that are needed anyway (`placement`).

Both ways end alike: once the machines in question are lost, what is left is done in the pool that
is best then. So a move is worth what it saves on the lives of two gangs, of which the old one has
perhaps survived the ages at which most are taken, and the new one has not; less what the move
costs: until the new machines train both gangs are paid, and the checkpoint has to be brought there.
Nothing is trained twice, for the old gang saves before it leaves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from app.domain.availability.gang_hazard import (
    MachineLife,
    gang_hazard_per_hour,
    seconds_to_next_age,
)
from app.domain.availability.hazard_by_age import AGE_EDGES_SECONDS, LONGEST_SECONDS
from app.domain.market.offer import Pool
from app.domain.placement.decision import MoveDecision
from app.domain.placement.expected_cost import useful_hour_microusd
from app.domain.units.durations import billed_as, format_duration
from app.domain.units.money import format_usd
from app.domain.units.percent import percent

_HOUR = 3_600.0
_OVER_THE_EDGE_SECONDS = 1e-6
"""An age of rounded seconds may end a hair before its edge: each stretch goes past it."""


@dataclass(frozen=True)
class MoveTerms:
    """When a move is worth its while.

    boot_seconds, restore_seconds: until new machines have registered, and from then until they
    train, the start-up of the trainer included. saving_share: of what is left to pay a move must
    save so much, and saving_microusd.
    """

    boot_seconds: float
    restore_seconds: float
    saving_share: float
    saving_microusd: int


@dataclass(frozen=True)
class CurrentPlacement:
    """The gang as it is. work_seconds: what is left on it.

    microusd_per_hour: all machines; billing_speed: billed hours in an hour, as of an offer.
    """

    name: str
    microusd_per_hour: float
    machines: tuple[MachineLife, ...]
    hazard_factor: float
    work_seconds: float
    billing_speed: int = 1

    @property
    def billed_microusd_per_hour(self) -> float:
        """What an hour by the clock costs."""
        return self.microusd_per_hour * self.billing_speed


@dataclass(frozen=True)
class Candidate:
    """A gang that could be had.

    speed: against the present one; speed_source: how it is known, in words, empty where all
    machines are alike. egress_microusd: once, in all.
    """

    name: str
    microusd_per_hour: float
    hazard_factor: float
    machines: tuple[MachineLife, ...]
    egress_microusd: int = 0
    speed: float = 1.0
    speed_source: str = ""
    billing_speed: int = 1

    @property
    def billed_microusd_per_hour(self) -> float:
        """What an hour by the clock costs."""
        return self.microusd_per_hour * self.billing_speed


def decide_move(
    here: CurrentPlacement, theres: Sequence[Candidate], terms: MoveTerms
) -> MoveDecision:
    """The best of `theres`, if it beats staying by as much as the terms ask; ties by order."""
    restart = terms.boot_seconds + terms.restore_seconds
    hours = [_hour_later(here, len(here.machines), restart)]
    hours += [_hour_later(there, len(there.machines), restart) / there.speed for there in theres]
    later = min(hours)
    stay = _stay(here, later)
    if not theres:
        return MoveDecision(None, "No other pool fits.")
    costs = [_move(here, there, later, terms) for there in theres]
    best = min(range(len(theres)), key=lambda index: (costs[index], index))
    there, saving = theres[best], stay - costs[best]
    left = format_duration(here.work_seconds)
    pace = f", {there.speed:.2f} × as fast ({there.speed_source})," if there.speed_source else ""
    told = (
        f"{there.name}{pace} at {_usd(there.microusd_per_hour)} an hour is expected to finish the"
        f" remaining {left} for {_usd(costs[best])}, the move included; staying in {here.name} at"
        f" {_usd(here.microusd_per_hour)} for {_usd(stay)}{billed_as(here.billing_speed)}"
    )
    enough = max(stay * terms.saving_share, float(terms.saving_microusd))
    if saving <= 0 or saving < enough:
        why = f"a move must save at least {_usd(enough)}"
        return MoveDecision(None, f"{told}: {why}.")
    sentence = f"{told}: it saves {percent(saving / stay)}."
    return MoveDecision(there.name, sentence)


def expected_work_seconds(machines: Sequence[MachineLife], most_seconds: float) -> float:
    """How long a gang works until its first machine is lost, or the work is done; the mean.

    The integral of the survival function, over stretches in which no hazard changes.
    """
    most, at, alive, total = min(most_seconds, LONGEST_SECONDS), 0.0, 1.0, 0.0
    for _ in range(len(machines) * len(AGE_EDGES_SECONDS) + 1):
        aged = [replace(machine, age_seconds=machine.age_seconds + at) for machine in machines]
        rate = gang_hazard_per_hour(aged) / _HOUR
        edge = seconds_to_next_age(aged)
        lasts = most - at if edge is None else min(most - at, edge + _OVER_THE_EDGE_SECONDS)
        survives = math.exp(-rate * lasts)
        total += alive * (1 - survives) / rate
        alive *= survives
        at += lasts
        if at >= most:
            break
    return total


def _stay(here: CurrentPlacement, later_microusd: float) -> float:
    """Micro-dollars for all that is left."""
    worked = expected_work_seconds(here.machines, here.work_seconds)
    left = max(0.0, here.work_seconds - worked)
    return (here.billed_microusd_per_hour * worked + later_microusd * left) / _HOUR


def _move(
    here: CurrentPlacement, there: Candidate, later_microusd: float, terms: MoveTerms
) -> float:
    """The same by way of `there`. While it boots the old gang works; while it restores nobody."""
    boot = min(terms.boot_seconds, here.work_seconds)
    left = here.work_seconds - boot
    both = here.billed_microusd_per_hour + there.billed_microusd_per_hour
    aged = [
        replace(m, age_seconds=m.age_seconds + terms.boot_seconds + terms.restore_seconds)
        for m in there.machines
    ]
    worked = expected_work_seconds(aged, left / there.speed)
    rest = max(0.0, left - worked * there.speed)
    seconds = both * (boot + terms.restore_seconds) + there.billed_microusd_per_hour * worked
    return (seconds + later_microusd * rest) / _HOUR + there.egress_microusd


def _hour_later(gang: CurrentPlacement | Candidate, count: int, restart_seconds: float) -> float:
    """What an hour of progress costs with ever new gangs there: one lost machine stops all."""
    billed = gang.billed_microusd_per_hour
    return useful_hour_microusd(billed, gang.hazard_factor * count, restart_seconds)


def pool_name(pool: Pool) -> str:
    """Tells spot pools apart, in words."""
    return f"{pool.provider} {pool.zone} {pool.instance_type}"


def _usd(microusd: float) -> str:
    return format_usd(round(microusd))
