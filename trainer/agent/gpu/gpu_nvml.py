"""GPU faults as the driver's own library (NVML) tells them: Xid events, ECC, rows, lost GPUs.

Lives here: the questions and what their answers mean. Not here: the same from the kernel's log and
nvidia-smi, which stay the way where this library cannot be used (`gpu_faults`). Source: NVIDIA,
"NVML API Reference Guide", Event Handling and Device Queries.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from typing import Any, Final, Protocol

from trainer.agent.gpu.gpu_fault import FAULT_XIDS, GpuFault

ANSWER_SECONDS: Final = 30.0
_SILENCES_MAX: Final = 2
_LOST_LOOKS: Final = 2
_EVENTS_MAX: Final = 1_000
_NVLINK_XIDS: Final = range(144, 151)
# NVML gives numbers alone: whether these are faults is said by the kernel's text beside them.
_TOLD_BY_TEXT: Final = frozenset({154, *_NVLINK_XIDS})


class Nvml(Protocol):
    """The part of the module `pynvml` (nvidia-ml-py) that is used, under the library's names."""

    NVMLError: type[Exception]
    NVML_ERROR_TIMEOUT: int
    NVML_ERROR_GPU_IS_LOST: int
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED: int
    NVML_VOLATILE_ECC: int
    nvmlEventTypeXidCriticalError: int  # noqa: N815

    nvmlInit: Callable[[], object]  # noqa: N815
    nvmlDeviceGetCount: Callable[[], int]  # noqa: N815
    nvmlDeviceGetHandleByIndex: Callable[[int], Any]  # noqa: N815
    nvmlDeviceGetPciInfo: Callable[[Any], Any]  # noqa: N815
    nvmlDeviceGetTotalEccErrors: Callable[[Any, int, int], int]  # noqa: N815
    nvmlDeviceGetRemappedRows: Callable[[Any], tuple[int, int, int, int]]  # noqa: N815
    nvmlEventSetCreate: Callable[[], Any]  # noqa: N815
    nvmlDeviceRegisterEvents: Callable[[Any, int, Any], object]  # noqa: N815
    nvmlEventSetWait_v2: Callable[[Any, int], Any]  # noqa: N815


class NvmlUnavailable(Exception):
    """There is no such library, or no driver behind it."""


def open_nvml(gpu_count: int, module: Nvml | None = None) -> NvmlGpus:
    """Faults of the machine's GPUs. Raises NvmlUnavailable.

    module: what speaks to the library; without one nvidia-ml-py is loaded, where it is installed.
    """
    if module is None:
        try:
            module = importlib.import_module("pynvml")
        except ImportError as error:
            raise NvmlUnavailable(f"nvidia-ml-py is not installed: {error}") from error
    try:
        module.nvmlInit()
        return NvmlGpus(module, gpu_count)
    except module.NVMLError as error:
        raise NvmlUnavailable(f"the driver's library cannot be used: {error}") from error


class NvmlGpus:
    """Looks at every GPU; `poll` from one thread, every half minute or so."""

    def __init__(self, nvml: Nvml, gpu_count: int) -> None:
        self._nvml, self._gpu_count = nvml, gpu_count
        self._handles: dict[int, tuple[Any, str]] = {}
        self._first_errors: dict[str, int] = {}
        self._first_rows: dict[str, int] = {}
        self._events = nvml.nvmlEventSetCreate()
        self._missing_looks = self._silences = 0
        self._under_way: threading.Thread | None = None
        self._found: list[GpuFault] = []
        self._open()

    def poll(self, seconds: float = ANSWER_SECONDS) -> list[GpuFault]:
        """Every fault that shows now; the caller tells each once.

        A library that does not answer in time, twice, is a fault of its own: a GPU or its driver
        hangs. Its answer is taken when it comes.
        """
        if self._under_way is None:
            self._under_way = threading.Thread(target=self._look, name="nvml", daemon=True)
            self._under_way.start()
        self._under_way.join(seconds)
        if self._under_way.is_alive():
            self._silences += 1
            if self._silences < _SILENCES_MAX:
                return []
            return [GpuFault("", "silent", "NVML does not answer: a GPU or its driver hangs")]
        self._under_way, self._silences = None, 0
        found, self._found = self._found, []
        return found

    def _look(self) -> None:
        found = self._xids()
        for handle, bus in list(self._handles.values()):
            found += self._health(handle, bus)
        if len(self._handles) < self._gpu_count:
            self._open()  # one more may have come up
        found += self._missing()
        self._found = found

    def _open(self) -> None:
        """Take up GPUs that were not there before, and listen to their Xids."""
        nvml = self._nvml
        for index in range(self._count()):
            if index in self._handles:
                continue
            try:
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                bus = _bus_of(nvml.nvmlDeviceGetPciInfo(handle))
            except nvml.NVMLError as error:
                if self._is_lost(error):
                    self._found.append(_lost(f"number {index}"))
                continue
            self._handles[index] = handle, bus
            self._listen(handle)

    def _listen(self, handle: Any) -> None:
        nvml = self._nvml
        try:
            nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, self._events)
        except nvml.NVMLError:
            return  # this GPU has no events; the kernel's log tells of its Xids too

    def _xids(self) -> list[GpuFault]:
        """Xids since the last look."""
        nvml, found = self._nvml, []
        for _ in range(_EVENTS_MAX):
            try:
                event = nvml.nvmlEventSetWait_v2(self._events, 0)
            except nvml.NVMLError as error:
                if _code(error) != nvml.NVML_ERROR_TIMEOUT and self._is_lost(error):
                    found.append(_lost(""))
                break
            number = int(event.eventData)
            meaning = FAULT_XIDS.get(number)
            if meaning is not None and number not in _TOLD_BY_TEXT:
                bus = self._bus_of_handle(event.device)
                message = f"GPU {bus or 'unknown'}: Xid {number}, {meaning}"
                found.append(GpuFault(bus, f"xid {number}", message))
        return found

    def _bus_of_handle(self, device: Any) -> str:
        """The GPU of an event, "" where it cannot even say that any more."""
        try:
            return _bus_of(self._nvml.nvmlDeviceGetPciInfo(device))
        except self._nvml.NVMLError:
            return ""

    def _health(self, handle: Any, bus: str) -> list[GpuFault]:
        """Memory errors and rows; a GPU that does not count them has none."""
        nvml, found = self._nvml, []
        try:
            errors = nvml.nvmlDeviceGetTotalEccErrors(
                handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
            )
            more = errors - self._first_errors.setdefault(bus, errors)
            if more > 0:
                text = f"GPU {bus}: {more} new uncorrectable ECC errors"
                found.append(GpuFault(bus, "ecc", text))
        except nvml.NVMLError as error:
            if self._is_lost(error):
                return [_lost(bus)]
        try:
            _, uncorrectable, pending, failed = nvml.nvmlDeviceGetRemappedRows(handle)
        except nvml.NVMLError as error:
            return [_lost(bus)] if self._is_lost(error) else found
        if failed:
            found.append(GpuFault(bus, "rows", f"GPU {bus}: its memory rows cannot be remapped"))
        # A row that waits for a reset since before we came harms nobody: it is not used meanwhile.
        if pending and uncorrectable > self._first_rows.setdefault(bus, uncorrectable):
            text = f"GPU {bus}: memory failed for good; its row is remapped only by a reset"
            found.append(GpuFault(bus, "rows pending", text))
        return found

    def _missing(self) -> list[GpuFault]:
        """Fewer GPUs than rented, twice in a row: once may be a driver that is just loading."""
        seen = self._count()
        self._missing_looks = self._missing_looks + 1 if seen < self._gpu_count else 0
        if self._missing_looks < _LOST_LOOKS:
            return []
        return [GpuFault("", "missing", f"only {seen} of {self._gpu_count} GPUs are left")]

    def _count(self) -> int:
        try:
            return self._nvml.nvmlDeviceGetCount()
        except self._nvml.NVMLError:
            return 0

    def _is_lost(self, error: Exception) -> bool:
        return _code(error) == self._nvml.NVML_ERROR_GPU_IS_LOST


def _code(error: Exception) -> object:
    return getattr(error, "value", None)


def _lost(gpu: str) -> GpuFault:
    return GpuFault(gpu, "lost", f"GPU {gpu or 'unknown'} is lost: NVML reaches it no more")


def _bus_of(pci: Any) -> str:
    """Its address as the kernel's log writes it: `0000:2b:00` of `00000000:2B:00.0`."""
    raw = pci.busId
    text = (raw.decode() if isinstance(raw, bytes) else str(raw)).lower().partition(".")[0]
    domain, _, rest = text.partition(":")
    return f"{domain[-4:]}:{rest}"
