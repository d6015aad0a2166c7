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
from app.domain.throughput.measured_run import Kind, MeasuredRun

PRIOR_SECONDS = 1_800.0
"""Training on a kind that weighs as much as its data sheet."""

MEASURED = "measured on this work"
"""What is said of a speed that rests on runs."""

DOUBT = 1.25
"""Work on a kind that was never measured is planned with so many times the expected seconds."""


V100 = Kind("V100", 16, 1)
"""The kind that speeds are told against."""


@dataclass(frozen=True)
class KindSpeeds:
    """Speeds of kinds that were measured, against a V100's; others are as their data sheets say."""

    measured: Mapping[Kind, float]

    def of(self, kind: Kind) -> float:
        """How fast one machine of a kind works, against a V100; its memory may be open (0)."""
        alike = self._measured_alike(kind)
        return expected_speed(kind) if alike is None else self.measured[alike]

    def is_measured(self, kind: Kind) -> bool:
        """Whether the speed rests on runs, and not on the data sheet alone."""
        return self._measured_alike(kind) is not None

    def _measured_alike(self, kind: Kind) -> Kind | None:
        if kind in self.measured:
            return kind
        return next((one for one in sorted(self.measured) if _alike(one, kind)), None)

    def source(self, kind: Kind) -> str:
        """How the speed is known, in words."""
        return MEASURED if self.is_measured(kind) else "expected from its data sheet"

    def seconds_on(self, kind: Kind, seconds: float, told_for: Kind) -> float:
        """What work takes on `kind` that takes `seconds` on `told_for`; on the safe side."""
        if _alike(kind, told_for):
            return seconds
        doubt = 1.0 if self.is_measured(kind) else DOUBT
        return seconds * self.of(told_for) / self.of(kind) * doubt


def _alike(kind: Kind, told_for: Kind) -> bool:
    """Whether both are one kind; who names a kind may leave its memory open (0)."""
    named = told_for.name == kind.name and told_for.gpus == kind.gpus
    return named and (
        told_for.memory_gb == kind.memory_gb or 0 in (told_for.memory_gb, kind.memory_gb)
    )


NOTHING_MEASURED = KindSpeeds({})


@lru_cache(maxsize=1_024)  # asked for several times for each of thousands of offers
def kind_of(hardware: Hardware) -> Kind:
    """The kind of a machine."""
    return Kind(hardware.gpu_name, hardware.gpu_memory_gb, hardware.gpu_count)


def kind_of_choice(choice: GpuChoice | None) -> Kind:
    """The kind that a spec names; a V100 where it names none."""
    if choice is None or choice.name is None:
        return V100
    return Kind(choice.name, choice.memory_gb or 0, choice.count)


def expected_speed(kind: Kind) -> float:
    """From the data sheets, against a V100."""
    return relative_speed(kind.name, kind.memory_gb, kind.gpus)


def kind_speeds(runs: Sequence[MeasuredRun], scaling: GangScaling = EXPECTED_SCALING) -> KindSpeeds:
    """What runs of the same work say of the kinds they were on; nothing of a single kind.

    The scale between steps and data sheets is the mean of all kinds' logarithms, each weighed by
    its seconds up to PRIOR_SECONDS; each kind then lies between its own pace and its data sheet.
    """
    steps, seconds = _sums(runs, scaling)
    if len(steps) < 2:
        return NOTHING_MEASURED
    logs = {kind: math.log(steps[kind] / seconds[kind] / expected_speed(kind)) for kind in steps}
    weights = {kind: min(PRIOR_SECONDS, seconds[kind]) for kind in steps}
    scale = sum(weights[kind] * logs[kind] for kind in steps) / sum(weights.values())
    measured = {}
    for kind in sorted(steps):
        share = seconds[kind] / (seconds[kind] + PRIOR_SECONDS)
        measured[kind] = expected_speed(kind) * math.exp(share * (logs[kind] - scale))
    return KindSpeeds(measured)


def _sums(
    runs: Iterable[MeasuredRun], scaling: GangScaling
) -> tuple[dict[Kind, float], dict[Kind, float]]:
    """Steps and seconds of each kind, as if of one machine."""
    steps: dict[Kind, float] = {}
    seconds: dict[Kind, float] = {}
    for run in runs:
        if run.steps > 0 and run.seconds > 0:
            steps[run.kind] = steps.get(run.kind, 0.0) + run.steps / scaling.speed_up(run.nodes)
            seconds[run.kind] = seconds.get(run.kind, 0.0) + run.seconds
    return steps, seconds
