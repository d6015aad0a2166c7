"""Whether a GPU of this machine has failed: from the kernel's log, and from NVML or nvidia-smi.

Lives here: reading the log and nvidia-smi, and a watch that tells each fault once. Not here: NVML
(`gpu_nvml`), which faults there are (`gpu_fault`), or what one changes (`supervisor`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import subprocess
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from trainer.agent.gpu.gpu_fault import FAULT_XIDS, GpuFault
from trainer.agent.gpu.gpu_nvml import NvmlGpus, NvmlUnavailable, open_nvml
from trainer.agent.rules.observations import GpuFaulted, Observation

log = logging.getLogger(__name__)

LOOK_SECONDS = 30.0

_NVLINK_XIDS = range(144, 151)
"""NVLink 5 errors: their text says whether they are fatal."""

_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9A-Fa-f:.]+)\): (\d+),?\s*(.*)")
# Xid 154 tells of every change of what is to be done, also of the change back to nothing.
_NOTHING_TO_DO = re.compile(r"\bto 0x0+ \(None\)", re.IGNORECASE)
_BUS = re.compile(r"GPU\s?([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9])")
_LOST = ("GPU is lost", "Unable to determine the device handle", "fallen off the bus")
_SMI_SECONDS = 30.0
_SMI_TIMEOUTS_MAX = 2
_LOST_LOOKS = 2
_RECORDS_MAX = 2_000
_RECORD_BYTES = 8_192
_TEXT_MAX = 200
_HEALTH = "--query-gpu=index,uuid,pci.bus_id,ecc.errors.uncorrected.volatile.total"
_ROWS = "--query-remapped-rows=gpu_bus_id,remapped_rows.failure"
_FORMAT = "--format=csv,noheader,nounits"


@dataclass(frozen=True)
class GpuHealth:
    """One GPU as nvidia-smi shows it. uncorrected_errors: since the driver started; None if the
    GPU does not count them.
    """

    index: int
    uuid: str
    bus_id: str
    uncorrected_errors: int | None


@dataclass(frozen=True)
class SmiAnswer:
    """What nvidia-smi printed, on stdout and stderr together; None: it did not answer in time."""

    output: str | None


def parse_kernel_line(line: str) -> GpuFault | None:
    """The fault that a line of the kernel's log tells of, None for any other line."""
    found = _XID.search(line)
    if found is None:
        return None
    gpu, number, text = found[1].lower(), int(found[2]), found[3].strip()[:_TEXT_MAX]
    meaning = FAULT_XIDS.get(number)
    if number in _NVLINK_XIDS and " Fatal" in text:
        meaning = "a fatal NVLink error"
    if meaning is None or (number == 154 and _NOTHING_TO_DO.search(text)):
        return None
    said = f" ({text})" if text else ""
    return GpuFault(gpu, f"xid {number}", f"GPU {gpu}: Xid {number}, {meaning}{said}")


def parse_lost(output: str) -> tuple[GpuFault, ...]:
    """GPUs that nvidia-smi says it cannot reach."""
    faults = []
    for line in output.splitlines():
        if any(sign in line for sign in _LOST):
            bus = _BUS.search(line)
            gpu = bus[1].lower() if bus else ""
            faults.append(GpuFault(gpu, "lost", f"GPU {gpu or 'unknown'} is lost: {line[:200]}"))
    return tuple(faults)


def parse_health(output: str) -> tuple[GpuHealth, ...]:
    """The GPUs in an answer to the health query; lines of another form are not GPUs."""
    found = []
    for line in output.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == 4 and cells[0].isdigit() and cells[1].startswith("GPU-"):
            errors = int(cells[3]) if cells[3].isdigit() else None
            found.append(GpuHealth(int(cells[0]), cells[1], cells[2].lower(), errors))
    return tuple(found)


def parse_failed_rows(output: str) -> tuple[GpuFault, ...]:
    """GPUs whose memory rows could not be remapped; those that cannot say (N/A) have none."""
    faults = []
    for line in output.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == 2 and ":" in cells[0] and cells[1].lower() in ("yes", "1"):
            gpu = cells[0].lower()
            faults.append(GpuFault(gpu, "rows", f"GPU {gpu}: its memory rows cannot be remapped"))
    return tuple(faults)


class KernelLog:
    """The kernel's log from the start of this boot on; nothing where it may not be read."""

    def __init__(self, path: Path = Path("/dev/kmsg")) -> None:
        self._handle: int | None = None
        with contextlib.suppress(OSError):
            self._handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)

    def new_lines(self) -> list[str]:
        """Lines since the last call, at most 2,000; the rest next time."""
        lines: list[str] = []
        while self._handle is not None and len(lines) < _RECORDS_MAX:
            try:
                record = os.read(self._handle, _RECORD_BYTES)
            except BrokenPipeError:
                continue  # lines were overwritten before they were read: the next ones follow
            except OSError:
                break
            if not record:
                break
            # "priority,number,microseconds,flags;text", further lines belong to the text.
            lines += record.decode("utf-8", "replace").partition(";")[2].splitlines()[:1]
        return lines

    def close(self) -> None:
        """Close it; further calls find nothing."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def ask_smi(*arguments: str) -> SmiAnswer:
    """What nvidia-smi prints; an empty answer where there is no such command."""
    try:
        done = subprocess.run(
            ["nvidia-smi", *arguments],
            capture_output=True,
            timeout=_SMI_SECONDS,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return SmiAnswer(None)
    except OSError:
        return SmiAnswer("")
    return SmiAnswer((done.stdout + b"\n" + done.stderr).decode("utf-8", "replace"))


class GpuFaultWatch:
    """Finds faults; `poll` every half minute or so, from one thread.

    gpu_count: GPUs this machine was rented with; 0 turns the watch off. nvml: asked in place of
    nvidia-smi, where it is to be had (`nvml_or_none`).
    """

    def __init__(
        self,
        gpu_count: int,
        kernel_lines: Callable[[], Iterable[str]] | None = None,
        smi: Callable[..., SmiAnswer] = ask_smi,
        nvml: NvmlGpus | None = None,
    ) -> None:
        self._nvml = nvml
        self._gpu_count = gpu_count
        self._kernel_lines = kernel_lines or KernelLog().new_lines
        self._smi = smi
        self._told: set[tuple[str, str]] = set()
        self._first_errors: dict[str, int] = {}
        self._timeouts = 0
        self._missing_looks = 0

    def poll(self) -> tuple[GpuFault, ...]:
        """Faults that have not been told yet; each is told once per GPU and kind."""
        if self._gpu_count == 0:
            return ()
        found = [fault for line in self._kernel_lines() if (fault := parse_kernel_line(line))]
        found += self._looked_at() if self._nvml is None else self._nvml.poll()
        fresh = []
        for fault in found:
            if (fault.gpu, fault.kind) not in self._told:
                self._told.add((fault.gpu, fault.kind))
                fresh.append(fault)
        return tuple(fresh)

    def _looked_at(self) -> list[GpuFault]:
        answer = self._smi(_HEALTH, _FORMAT)
        if answer.output is None:
            self._timeouts += 1
            if self._timeouts < _SMI_TIMEOUTS_MAX:
                return []
            return [GpuFault("", "silent", "nvidia-smi does not answer: a GPU or its driver hangs")]
        self._timeouts = 0
        healths = parse_health(answer.output)
        faults = [*parse_lost(answer.output), *self._more_errors(healths)]
        faults += self._missing(len(healths))
        rows = self._smi(_ROWS, _FORMAT).output
        return faults + list(parse_failed_rows(rows or ""))

    def _more_errors(self, healths: Iterable[GpuHealth]) -> list[GpuFault]:
        """Errors that came while we watched; older ones have been dealt with by the provider."""
        faults = []
        for health in healths:
            if health.uncorrected_errors is None:
                continue
            first = self._first_errors.setdefault(health.uuid, health.uncorrected_errors)
            if health.uncorrected_errors > first:
                more = health.uncorrected_errors - first
                message = f"GPU {health.bus_id}: {more} new uncorrectable ECC errors"
                faults.append(GpuFault(health.bus_id, "ecc", message))
        return faults

    def _missing(self, seen: int) -> list[GpuFault]:
        """Fewer GPUs than rented, twice in a row: once may be a driver that is just loading."""
        self._missing_looks = self._missing_looks + 1 if seen < self._gpu_count else 0
        if self._missing_looks < _LOST_LOOKS:
            return []
        return [GpuFault("", "missing", f"only {seen} of {self._gpu_count} GPUs are left")]


def nvml_or_none(gpu_count: int) -> NvmlGpus | None:
    """NVML's view of the GPUs; None where the library or the driver cannot be used."""
    try:
        return open_nvml(gpu_count)
    except NvmlUnavailable as error:
        log.info("GPU faults are read from nvidia-smi: %s", error)
        return None


def watch_gpus(
    watch: GpuFaultWatch, observe: Callable[[Observation], None], stopping: threading.Event
) -> None:
    """Look at once and every half minute until `stopping`, and tell what is found."""
    while True:
        for fault in watch.poll():
            observe(GpuFaulted(fault.message))
        if stopping.wait(LOOK_SECONDS):
            return
