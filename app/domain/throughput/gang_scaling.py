"""How much faster a larger gang works: Amdahl's law, its serial share learned from runs.

The share of one machine's work that others cannot take over is expected to be small; attempts at
the same work on the same kind of machine, in gangs of different sizes, correct that. Sizes are
compared within a kind alone: what a kind gains over another is no matter of the gang. Not here:
kinds against each other (`gpu_throughput`), or which size a gang should have (`gang_size`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from app.domain.throughput.measured_run import GpuShape, MeasuredRun

SERIAL_SHARE: Final = 0.03
"""Expected of work that nobody measured: four machines then do the work of 3.7, eight that of 6.6;
published data-parallel runs on good networks lose about as much."""

_FALL: Final = 1 / SERIAL_SHARE - 1
"""Weight of that expectation, a Beta(1, _FALL) distribution: its mean is SERIAL_SHARE, half of all
work is taken to lose less than 2.1 % and nine in ten less than 6.9 %. Two hours on one machine and
two on four whose paces say 20 % make 15 % of it."""

PACE_ERROR: Final = 0.05
"""Two gangs of one kind and size differ by so much in pace, however long they are watched."""

STALL_SECONDS: Final = 120.0
"""Saves and evaluation may stall an attempt's steps by so much more than another's; a shorter one
says nothing."""

_SHARES: Final = 400
"""Points at which the belief is summed up, evenly over all shares from 0 to 1."""


@dataclass(frozen=True, slots=True)
class GangScaling:
    """serial_share: of one machine's work, in [0, 1); measured: whether runs tell it."""

    serial_share: float = SERIAL_SHARE
    measured: bool = False

    def speed_up(self, count: int) -> float:
        """How many times as fast as one machine so many of them work; 1 for one, rising.

        n / (1 + s (n - 1)): G. Amdahl, "Validity of the single processor approach to achieving
        large scale computing capabilities", AFIPS 1967.
        """
        return count / (1 + self.serial_share * (count - 1))

    def relative_pace(self, count: int, of_count: int) -> float:
        """The pace of so many machines in terms of that of `of_count`; 1 for the same number."""
        return 1.0 if count == of_count else self.speed_up(count) / self.speed_up(of_count)

    @property
    def kept_share(self) -> float | None:
        """As `scaling_of_share` takes it again."""
        return self.serial_share if self.measured else None

    def sentence(self, count: int) -> str:
        """What so many machines are worth, and how that is known; without a full stop."""
        known = "measured on this work" if self.measured else "expected, not measured yet"
        return f"{count} machines do the work of {self.speed_up(count):.1f}, {known}"


EXPECTED_SCALING: Final = GangScaling()
"""Of work that nobody measured."""


def scaling_of_share(serial_share: float | None) -> GangScaling:
    """As it was kept; None: nothing was measured."""
    return EXPECTED_SCALING if serial_share is None else GangScaling(serial_share, measured=True)


class _Pace(NamedTuple):
    """A size's pace on one kind. log_cost: of machine-seconds for each step; weight: 1/variance."""

    nodes: int
    log_cost: float
    weight: float


def gang_scaling(runs: Sequence[MeasuredRun]) -> GangScaling:
    """What runs of the same work say of its scaling; as expected where no kind had two sizes.

    The mean of the belief after the runs (Bayes), summed over _SHARES points. By Amdahl's law the
    machine-seconds of a step rise with the size as 1 + s (n - 1), by an unknown factor for each
    kind, which is left free. Their logarithms err by PACE_ERROR and by what stalls may hide.
    """
    shapes = [paces for paces in _paces(runs) if len(paces) > 1]
    if not shapes:
        return EXPECTED_SCALING
    shares = [(place + 0.5) / _SHARES for place in range(_SHARES)]
    logs = [
        (_FALL - 1) * math.log1p(-share) - sum(_misfit(paces, share) for paces in shapes) / 2
        for share in shares
    ]
    most = max(logs)
    masses = [math.exp(log - most) for log in logs]
    mean = sum(share * mass for share, mass in zip(shares, masses, strict=True)) / sum(masses)
    return GangScaling(mean, measured=True)


def _misfit(paces: Sequence[_Pace], share: float) -> float:
    """Weighted squares of what is left of a kind's paces, its own factor taken at its best."""
    left = [one.log_cost - math.log1p(share * (one.nodes - 1)) for one in paces]
    weight = sum(one.weight for one in paces)
    mean = sum(one.weight * rest for one, rest in zip(paces, left, strict=True)) / weight
    return sum(one.weight * (rest - mean) ** 2 for one, rest in zip(paces, left, strict=True))


def _paces(runs: Iterable[MeasuredRun]) -> list[list[_Pace]]:
    """For each kind the paces of its sizes, the smallest first."""
    sums: dict[tuple[GpuShape, int], tuple[int, float, int]] = {}
    for run in runs:
        if run.steps > 0 and run.seconds >= STALL_SECONDS and run.nodes > 0:
            steps, seconds, attempts = sums.get((run.shape, run.nodes), (0, 0.0, 0))
            sums[run.shape, run.nodes] = (steps + run.steps, seconds + run.seconds, attempts + 1)
    shapes: dict[GpuShape, list[_Pace]] = {}
    for (shape, nodes), (steps, seconds, attempts) in sorted(sums.items()):
        variance = PACE_ERROR**2 / attempts + (STALL_SECONDS * attempts / seconds) ** 2
        pace = _Pace(nodes, math.log(nodes * seconds / steps), 1 / variance)
        shapes.setdefault(shape, []).append(pace)
    return list(shapes.values())
