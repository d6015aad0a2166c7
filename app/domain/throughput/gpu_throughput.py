"""How fast kinds of machine do a job's work, from what was measured of it and what is expected.

Expected speeds come from data sheets (`gpu_catalog`) and may be off by half; runs of the same work
correct them, kind by kind, the more the longer they lasted. Speeds compare kinds with each other:
one kind alone that was measured says nothing about any other. Here: speeds and seconds of work on
another kind. Not here: which runs were of the same work (the port `pool_experience`), or how gangs
scale (`gang_scaling`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from app.domain.market.gpu_catalog import relative_speed
from app.domain.market.gpu_choice import GpuChoice
from app.domain.market.offer import Hardware
from app.domain.throughput.gang_scaling import EXPECTED_SCALING, GangScaling
from app.domain.throughput.measured_run import GpuShape, MeasuredRun

PRIOR_SECONDS = 1_800.0
"""Training on a kind that weighs as much as its data sheet."""

MEASURED = "measured on this work"
"""What is said of a speed that rests on runs."""

DOUBT = 1.25
"""Work on a kind that was never measured is planned with so many times the expected seconds."""


V100 = GpuShape("V100", 16, 1)
"""The kind that speeds are told against."""


@dataclass(frozen=True)
class GpuThroughput:
    """Speeds of kinds that were measured, against a V100's; others are as their data sheets say."""

    measured: Mapping[GpuShape, float]

    def of(self, shape: GpuShape) -> float:
        """How fast one machine of a kind works, against a V100; its memory may be open (0)."""
        alike = self._measured_alike(shape)
        return expected_speed(shape) if alike is None else self.measured[alike]

    def is_measured(self, shape: GpuShape) -> bool:
        """Whether the speed rests on runs, and not on the data sheet alone."""
        return self._measured_alike(shape) is not None

    def _measured_alike(self, shape: GpuShape) -> GpuShape | None:
        if shape in self.measured:
            return shape
        return next((one for one in sorted(self.measured) if _is_same_shape(one, shape)), None)

    def source(self, shape: GpuShape) -> str:
        """How the speed is known, in words."""
        return MEASURED if self.is_measured(shape) else "expected from its data sheet"

    def seconds_on(self, shape: GpuShape, seconds: float, told_for: GpuShape) -> float:
        """What work takes on `shape` that takes `seconds` on `told_for`; on the safe side."""
        if _is_same_shape(shape, told_for):
            return seconds
        doubt = 1.0 if self.is_measured(shape) else DOUBT
        return seconds * self.of(told_for) / self.of(shape) * doubt


def _is_same_shape(shape: GpuShape, told_for: GpuShape) -> bool:
    """Whether both are one kind; who names a kind may leave its memory open (0)."""
    named = told_for.name == shape.name and told_for.gpus == shape.gpus
    return named and (
        told_for.memory_gb == shape.memory_gb or 0 in (told_for.memory_gb, shape.memory_gb)
    )


NOTHING_MEASURED = GpuThroughput({})


@lru_cache(maxsize=1_024)  # asked for several times for each of thousands of offers
def gpu_shape_of(hardware: Hardware) -> GpuShape:
    """The kind of a machine."""
    return GpuShape(hardware.gpu_name, hardware.gpu_memory_gb, hardware.gpu_count)


def gpu_shape_of_choice(choice: GpuChoice | None) -> GpuShape:
    """The kind that a spec names; a V100 where it names none."""
    if choice is None or choice.name is None:
        return V100
    return GpuShape(choice.name, choice.memory_gb or 0, choice.count)


def expected_speed(shape: GpuShape) -> float:
    """From the data sheets, against a V100."""
    return relative_speed(shape.name, shape.memory_gb, shape.gpus)


def gpu_throughput(
    runs: Sequence[MeasuredRun], scaling: GangScaling = EXPECTED_SCALING
) -> GpuThroughput:
    """What runs of the same work say of the kinds they were on; nothing of a single kind.

    The scale between steps and data sheets is the mean of all kinds' logarithms, each weighed by
    its seconds up to PRIOR_SECONDS; each kind then lies between its own pace and its data sheet.
    """
    steps, seconds = _sums(runs, scaling)
    if len(steps) < 2:
        return NOTHING_MEASURED
    logs = {
        shape: math.log(steps[shape] / seconds[shape] / expected_speed(shape)) for shape in steps
    }
    weights = {shape: min(PRIOR_SECONDS, seconds[shape]) for shape in steps}
    scale = sum(weights[shape] * logs[shape] for shape in steps) / sum(weights.values())
    measured = {}
    for shape in sorted(steps):
        share = seconds[shape] / (seconds[shape] + PRIOR_SECONDS)
        measured[shape] = expected_speed(shape) * math.exp(share * (logs[shape] - scale))
    return GpuThroughput(measured)


def _sums(
    runs: Iterable[MeasuredRun], scaling: GangScaling
) -> tuple[dict[GpuShape, float], dict[GpuShape, float]]:
    """Steps and seconds of each kind, as if of one machine."""
    steps: dict[GpuShape, float] = {}
    seconds: dict[GpuShape, float] = {}
    for run in runs:
        if run.steps > 0 and run.seconds > 0:
            steps[run.shape] = steps.get(run.shape, 0.0) + run.steps / scaling.speed_up(run.nodes)
            seconds[run.shape] = seconds.get(run.shape, 0.0) + run.seconds
    return steps, seconds
