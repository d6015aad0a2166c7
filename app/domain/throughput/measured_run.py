"""What was measured of a job's work: attempts that trained, on so many machines of a kind.

Not here: what follows from them (`gpu_throughput`, `gang_scaling`), or which attempts did the same
work (the port `pool_experience`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class GpuShape(NamedTuple):
    """What decides how fast one machine works: its GPUs."""

    name: str
    memory_gb: int
    gpus: int


@dataclass(frozen=True)
class MeasuredRun:
    """An attempt that trained: so many steps in so many seconds, on `nodes` machines of a kind."""

    shape: GpuShape
    nodes: int
    steps: int
    seconds: float
