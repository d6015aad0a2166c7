"""What counts as a fault of a GPU, whoever tells of it.

A fault is one that the machine does not recover from, or that killed the trainer without its doing;
errors that programs cause are none. Not here: how faults are found (`gpu_faults`, `gpu_nvml`).
"""

from __future__ import annotations

from dataclasses import dataclass

FAULT_XIDS: dict[int, str] = {
    46: "the GPU stopped processing",
    48: "an uncorrectable (double bit) ECC error",
    62: "an internal micro-controller halt",
    64: "memory rows could not be remapped",
    74: "an NVLink error",
    79: "the GPU has fallen off the bus",
    92: "a high rate of single-bit ECC errors",
    94: "a contained ECC error, which ended the program on it",
    95: "an uncontained ECC error",
    109: "a context switch timeout",
    110: "a security fault of its processor",
    119: "its system processor does not answer",
    120: "an error of its system processor",
    136: "a failed link training",
    140: "an unrecovered ECC error",
    143: "a failure to initialise",
    154: "it must be reset or its machine rebooted",
}
"""Xids that NVIDIA answers with a reset, a reboot or service, and 94, which ends the program on
the GPU without its fault (NVIDIA, "Analyzing Xid Errors with the Xid Catalog"). Left out: those
that programs cause (13, 31, 43, 45, 68, 69) and those that need nothing at once (63)."""


@dataclass(frozen=True)
class GpuFault:
    """One fault. gpu: its PCI address, "" where none is named; kind: one word for what it is."""

    gpu: str
    kind: str
    message: str
