"""All that runs of the same work tell beforehand: of kinds of machine, and of sizes of gang.

Not here: how each is worked out (`gpu_throughput`, `gang_scaling`), or which runs there were (the
port `pool_experience`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.domain.throughput.gang_scaling import EXPECTED_SCALING, GangScaling, gang_scaling
from app.domain.throughput.gpu_throughput import NOTHING_MEASURED, GpuThroughput, gpu_throughput
from app.domain.throughput.measured_run import MeasuredRun


@dataclass(frozen=True)
class MeasuredWork:
    """speeds: of kinds of machine; scaling: of gangs of one kind."""

    speeds: GpuThroughput = NOTHING_MEASURED
    scaling: GangScaling = EXPECTED_SCALING


NOT_MEASURED = MeasuredWork()
"""Of work that nobody ran: as the data sheets and the usual scaling have it."""


def measured_work(runs: Sequence[MeasuredRun]) -> MeasuredWork:
    """What these runs say; paces of gangs count as those of one machine by their own scaling."""
    scaling = gang_scaling(runs)
    return MeasuredWork(gpu_throughput(runs, scaling), scaling)
