"""The kinds of GPU that machines carry: names, memory, and the peaks their vendors print.

Lives here: facts about the chips, and finding one by its catalog name or by what its driver calls
it. Not here: the machine types that carry them (``market.machine_catalog``), how fast they
train (``app.domain.market.gpu_catalog`` against each other, ``train_estimate`` in seconds).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

CATALOG_DATE: Final = "2026-11-20"
"""When the figures below were last compared with the data sheets."""

NVIDIA: Final = "nvidia"


@dataclass(frozen=True, slots=True)
class GpuModel:
    """One kind of GPU in one memory size, figures of the variant that clouds rent out.

    tensor_tflops: dense 16-bit matrix throughput (no sparsity), in 10^12 operations per second.
    bandwidth_gb_per_second: of its own memory. source: the data sheet with both figures.
    """

    name: str
    memory_gb: int
    tensor_tflops: float
    bandwidth_gb_per_second: float
    source: str
    vendor: str = NVIDIA

    @property
    def label(self) -> str:
        """Name and memory, as a job spec writes them: ``A100:80GB``."""
        return f"{self.name}:{self.memory_gb}GB"

    @property
    def words(self) -> str:
        """Name and memory, as people read them: ``A100 80 GB``."""
        return f"{self.name} {self.memory_gb} GB"


GPU_MODELS: Final = (
    GpuModel("T4", 16, 65, 320, "NVIDIA T4 data sheet"),
    GpuModel("P100", 16, 18.7, 732, "NVIDIA Tesla P100 PCIe data sheet"),
    GpuModel("V100", 16, 125, 900, "NVIDIA V100 data sheet (SXM2)"),
    GpuModel("V100", 32, 125, 900, "NVIDIA V100 data sheet (SXM2)"),
    GpuModel("L4", 24, 121, 300, "NVIDIA L4 data sheet"),
    GpuModel("A10G", 24, 70, 600, "NVIDIA A10G data sheet"),
    GpuModel("L40S", 48, 362, 864, "NVIDIA L40S data sheet"),
    GpuModel("A100", 40, 312, 1_555, "NVIDIA A100 data sheet (SXM4)"),
    GpuModel("A100", 80, 312, 2_039, "NVIDIA A100 data sheet (SXM4)"),
    GpuModel("H100", 80, 989, 3_350, "NVIDIA H100 data sheet (SXM5)"),
    GpuModel("H200", 141, 989, 4_800, "NVIDIA H200 data sheet (SXM5)"),
    GpuModel("B200", 180, 2_250, 8_000, "NVIDIA HGX B200 data sheet"),
    GpuModel("B300", 288, 2_250, 8_000, "NVIDIA HGX B300 data sheet"),
    GpuModel("RTX-PRO-6000", 96, 500, 1_597, "NVIDIA RTX PRO 6000 Blackwell Server data sheet"),
)

GPU_NAMES: Final = tuple(dict.fromkeys(model.name for model in GPU_MODELS))

_BY_NAME: Final = {
    name: tuple(model for model in GPU_MODELS if model.name == name) for name in GPU_NAMES
}
# Drivers and clouds report usable memory, which is below the size that the product is named for.
_USABLE_SHARE_MIN: Final = 0.9
# Slower variants of the same name, which no cloud of the catalog rents out: their peaks differ.
_OTHER_VARIANTS: Final = ("-H100-PCIE-", "-H100-NVL-", "-H200-NVL-")


def models_of(name: str) -> tuple[GpuModel, ...]:
    """The memory variants of a GPU by its upper-case name, smallest first; () when unknown."""
    return _BY_NAME.get(name, ())


def model_of(name: str, reported_memory_gb: float) -> GpuModel | None:
    """The variant that reports this much memory: the smallest that is named for no less."""
    for model in models_of(name):
        if _USABLE_SHARE_MIN * model.memory_gb <= reported_memory_gb <= 1.05 * model.memory_gb:
            return model
    return None


def model_of_device(device_name: str, memory_bytes: int) -> GpuModel | None:
    """The GPU that its driver calls so, as ``NVIDIA A100-SXM4-80GB``; None when it is not known."""
    words = "-" + re.sub(r"[^A-Z0-9]+", "-", device_name.upper()) + "-"
    if any(variant in words for variant in _OTHER_VARIANTS):
        return None
    for name in GPU_NAMES:
        if f"-{name}-" in words:
            return model_of(name, memory_bytes / 2**30)
    return None


def model_of_label(label: str) -> GpuModel | None:
    """``A100:80GB``, or a name alone (its smallest variant); letters of any case; None if unknown.

    A count behind it, as in a job spec (``A100:80GB:8``), is not part of the label.
    """
    name, _, memory = label.upper().partition(":")
    for model in models_of(name):
        if not memory or memory.removesuffix("GB") == str(model.memory_gb):
            return model
    return None
