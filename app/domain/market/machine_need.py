"""What one machine must have, and whether an offer's hardware has it.

Lives here: the need as numbers, and the sentence for what is missing. Not here: places, markets and
prices (`placement`), or how a person writes the need (`gpu_choice`, `job_spec_fields`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from app.domain.market.gpu_choice import GpuChoice
from app.domain.market.machine_catalog import INTERCONNECTS
from app.domain.market.offer import Hardware

INTERCONNECT_WORDS: Final = (*INTERCONNECTS, "efa", "tcpx", "rdma")
"""What a spec may ask for: between the GPUs of a machine, or between machines."""

_NETWORKS: Final = {"efa": ("efa",), "tcpx": ("tcpx", "tcpxo"), "rdma": ("rdma",)}


@dataclass(frozen=True, slots=True)
class MachineNeed:
    """The least that a machine must have beside its GPUs; 0, None and False ask for nothing.

    containers: docker, to run the job's `image`.
    """

    vcpus: int = 0
    memory_gb: int = 0
    interconnect: str | None = None
    containers: bool = False

    def __str__(self) -> str:
        parts = [
            f"{self.vcpus}+ CPUs" if self.vcpus else "",
            f"{self.memory_gb}GB+ memory" if self.memory_gb else "",
            self.interconnect or "",
            "docker" if self.containers else "",
        ]
        return ", ".join(part for part in parts if part)


NO_NEED: Final = MachineNeed()


def lacks(hardware: Hardware, need: MachineNeed) -> str | None:
    """What a machine lacks beside its GPUs, as a sentence; None when it lacks nothing."""
    if hardware.vcpus < need.vcpus:
        return f"has {hardware.vcpus} CPUs, {need.vcpus} are needed"
    if hardware.memory_gb < need.memory_gb:
        return f"has {hardware.memory_gb} GB of memory, {need.memory_gb} are needed"
    if need.interconnect is not None and not _connects(hardware, need.interconnect):
        return f"has no {need.interconnect}"
    if need.containers and not hardware.containers:
        return "boots a machine image without docker"
    return None


def is_choice(hardware: Hardware, choice: GpuChoice) -> bool:
    """Whether a machine carries exactly these GPUs."""
    if hardware.gpu_count != choice.count:
        return False
    if choice.name is None:
        return hardware.gpu_memory_gb >= (choice.memory_gb or 0)
    if hardware.gpu_name.upper() != choice.name:
        return False
    return choice.memory_gb in (None, hardware.gpu_memory_gb)


def carries_gpus(hardware: Hardware, choices: Iterable[GpuChoice], memory_gb_min: int) -> bool:
    """Whether a machine carries one of the choices; without any, a GPU with that much memory."""
    asked = tuple(choices)
    if not asked:
        return hardware.gpu_memory_gb >= memory_gb_min
    return any(is_choice(hardware, choice) for choice in asked)


def _connects(hardware: Hardware, wanted: str) -> bool:
    """A single GPU has nobody to talk to inside its machine, so any link will do there."""
    if wanted in _NETWORKS:
        return hardware.fast_network in _NETWORKS[wanted]
    if hardware.gpu_count == 1 or wanted == INTERCONNECTS[0]:
        return True
    if hardware.interconnect not in INTERCONNECTS:
        return False
    return INTERCONNECTS.index(hardware.interconnect) >= INTERCONNECTS.index(wanted)
