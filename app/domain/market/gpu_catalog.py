"""How fast the kinds of GPU should train, against each other.

Lives here: expectations from the vendors' figures. Not here: those figures, which the trainer uses
too (`trainer.protocol.gpu_models`), the machine types that carry GPUs (`machine_catalog`), or what
a person asks for (`gpu_choice`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from trainer.protocol.gpu_models import (
    CATALOG_DATE,
    GPU_MODELS,
    GPU_NAMES,
    NVIDIA,
    GpuModel,
    model_of,
    models_of,
)

__all__ = [
    "CATALOG_DATE",
    "GPU_MODELS",
    "GPU_NAMES",
    "NVIDIA",
    "THROUGHPUT_SOURCE",
    "GpuModel",
    "Throughput",
    "expected_throughput",
    "model_of",
    "models_of",
    "relative_speed",
]


@dataclass(frozen=True, slots=True)
class Throughput:
    """Expected training speed of one GPU as a multiple of a V100 with 16 GB."""

    cnn: float
    vit: float


THROUGHPUT_SOURCE: Final = (
    "computed from the data sheets: CNNs follow memory bandwidth, ViTs the geometric mean of "
    "memory bandwidth and dense 16-bit throughput, both against a V100"
)

_REFERENCE: Final = GPU_MODELS[2]


def expected_throughput(model: GpuModel) -> Throughput:
    """How fast one GPU should train; see THROUGHPUT_SOURCE. An expectation, not a measurement."""
    bandwidth = model.bandwidth_gb_per_second / _REFERENCE.bandwidth_gb_per_second
    compute = model.tensor_tflops / _REFERENCE.tensor_tflops
    return Throughput(round(bandwidth, 2), round(math.sqrt(bandwidth * compute), 2))


@lru_cache(maxsize=256)  # asked for each of thousands of offers, of a few kinds
def relative_speed(name: str, memory_gb: int, count: int = 1) -> float:
    """Expected speed of `count` GPUs against one V100, CNNs and ViTs weighed alike.

    memory_gb: 0 where it is left open; the smallest variant then. A GPU that is not in the list
    counts as a V100, so that its price alone decides.
    """
    known = models_of(name.upper())
    model = known[0] if known and not memory_gb else model_of(name.upper(), memory_gb)
    if model is None:
        return float(count)
    expected = expected_throughput(model)
    return count * math.sqrt(expected.cnn * expected.vit)
