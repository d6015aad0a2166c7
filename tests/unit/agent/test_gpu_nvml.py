"""GPU faults from recorded answers of NVML, and the way back to nvidia-smi without it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from trainer.agent.gpu.gpu_faults import GpuFaultWatch, SmiAnswer, nvml_or_none
from trainer.agent.gpu.gpu_nvml import Nvml, NvmlGpus, NvmlUnavailable, open_nvml

BUSES = ("00000000:2B:00.0", "00000000:3B:00.0")
NOT_SUPPORTED, DRIVER_NOT_LOADED = 3, 9


class RecordedError(Exception):
    """As `pynvml.NVMLError`: the library's number is its `value`."""

    def __init__(self, value: int) -> None:
        super().__init__(f"NVML error {value}")
        self.value = value


@dataclass
class Recording:
    """Answers of one library, as a driver gave them; what is an error is raised."""

    NVMLError: type[Exception] = RecordedError
    NVML_ERROR_TIMEOUT: int = 10
    NVML_ERROR_GPU_IS_LOST: int = 15
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED: int = 1
    NVML_VOLATILE_ECC: int = 0
    nvmlEventTypeXidCriticalError: int = 8  # noqa: N815
    count: int = 2
    ecc: dict[int, Any] = field(default_factory=lambda: {0: 0, 1: 0})
    rows: dict[int, Any] = field(default_factory=lambda: {0: (0, 0, 0, 0), 1: (0, 0, 0, 0)})
    xids: list[tuple[int, int]] = field(default_factory=list)
    registered: list[tuple[int, int]] = field(default_factory=list)
    no_driver: bool = False
    hangs: threading.Event | None = None

    def nvmlInit(self) -> None:  # noqa: N802
        if self.no_driver:
            raise RecordedError(DRIVER_NOT_LOADED)

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return self.count

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetPciInfo(self, handle: int) -> Any:  # noqa: N802
        return SimpleNamespace(busId=BUSES[handle].encode())

    def nvmlDeviceGetTotalEccErrors(self, handle: int, kind: int, counter: int) -> int:  # noqa: N802
        assert (kind, counter) == (1, 0), "uncorrectable ones, since the driver started"
        if self.hangs is not None:
            self.hangs.wait(30)
        return int(_given(self.ecc[handle]))

    def nvmlDeviceGetRemappedRows(self, handle: int) -> tuple[int, int, int, int]:  # noqa: N802
        found: tuple[int, int, int, int] = _given(self.rows[handle])
        return found

    def nvmlEventSetCreate(self) -> str:  # noqa: N802
        return "events"

    def nvmlDeviceRegisterEvents(self, handle: int, kinds: int, events: str) -> None:  # noqa: N802
        self.registered.append((handle, kinds))

    def nvmlEventSetWait_v2(self, events: str, milliseconds: int) -> Any:  # noqa: N802
        assert milliseconds == 0, "a look does not wait for events"
        if not self.xids:
            raise RecordedError(self.NVML_ERROR_TIMEOUT)
        handle, number = self.xids.pop(0)
        return SimpleNamespace(device=handle, eventType=8, eventData=number)


def opened(library: Recording) -> NvmlGpus:
    """Two GPUs are wanted. The functions of a module can be replaced, those of a class cannot."""
    return open_nvml(2, cast(Nvml, library))


def _given(answer: Any) -> Any:
    if isinstance(answer, Exception):
        raise answer
    return answer


@pytest.fixture
def library() -> Iterator[Recording]:
    recording = Recording()
    yield recording
    if recording.hangs is not None:
        recording.hangs.set()


def watch_of(library: Recording, *kernel_lines: str) -> GpuFaultWatch:
    lines = [list(kernel_lines)]
    return GpuFaultWatch(
        2,
        lambda: lines.pop() if lines else [],
        lambda *_: SmiAnswer("nvidia-smi is not to be asked where NVML answers"),
        opened(library),
    )


def test_healthy_gpus_have_no_fault_and_every_one_is_listened_to(library: Recording):
    watch = watch_of(library)
    assert watch.poll() == () == watch.poll()
    assert library.registered == [(0, 8), (1, 8)]


def test_an_xid_is_told_once_also_when_the_kernel_tells_of_it(library: Recording):
    kernel = "NVRM: Xid (PCI:0000:2b:00): 79, GPU has fallen off the bus."
    watch = watch_of(library, kernel)
    library.xids = [(0, 79), (0, 79), (1, 48)]
    assert [(one.gpu, one.kind) for one in watch.poll()] == [
        ("0000:2b:00", "xid 79"),
        ("0000:3b:00", "xid 48"),
    ]
    library.xids = [(0, 79)]
    assert watch.poll() == ()


@pytest.mark.parametrize("number", [13, 31, 43, 45, 63, 145, 154])
def test_xids_of_programs_and_those_that_only_a_text_explains_are_no_fault(
    library: Recording, number: int
):
    watch = watch_of(library)
    library.xids = [(0, number)]
    assert watch.poll() == ()


def test_only_memory_errors_that_came_while_we_watched_count(library: Recording):
    library.ecc = {0: 3, 1: RecordedError(NOT_SUPPORTED)}
    watch = watch_of(library)
    assert watch.poll() == ()
    library.ecc[0] = 5
    (fault,) = watch.poll()
    assert (fault.kind, fault.message) == ("ecc", "GPU 0000:2b:00: 2 new uncorrectable ECC errors")


def test_rows_that_failed_or_wait_for_a_reset_since_now(library: Recording):
    library.rows = {0: (0, 1, 1, 0), 1: RecordedError(NOT_SUPPORTED)}
    watch = watch_of(library)
    assert watch.poll() == (), "this row waits since before we came, and is not used"
    library.rows[0] = (0, 2, 1, 0)
    assert [one.kind for one in watch.poll()] == ["rows pending"]
    library.rows[0] = (0, 2, 1, 1)
    assert [one.kind for one in watch.poll()] == ["rows"]


@pytest.mark.parametrize("question", ["ecc", "rows"])
def test_a_lost_gpu_is_told_whoever_is_asked(library: Recording, question: str):
    watch = watch_of(library)
    getattr(library, question)[1] = RecordedError(library.NVML_ERROR_GPU_IS_LOST)
    assert [(one.gpu, one.kind) for one in watch.poll()] == [("0000:3b:00", "lost")]


def test_fewer_gpus_than_rented_are_a_fault_when_seen_twice(library: Recording):
    watch = watch_of(library)
    library.count = 1
    assert watch.poll() == ()
    assert [one.message for one in watch.poll()] == ["only 1 of 2 GPUs are left"]


def test_a_library_that_hangs_is_a_fault_when_it_hangs_twice(library: Recording):
    gpus = opened(library)
    library.hangs = threading.Event()
    assert gpus.poll(0.05) == []
    assert [one.kind for one in gpus.poll(0.05)] == ["silent"]
    library.hangs.set()
    assert gpus.poll(10) == []


def test_without_a_driver_or_the_library_nvidia_smi_is_asked(library: Recording):
    library.no_driver = True
    with pytest.raises(NvmlUnavailable, match="cannot be used"):
        opened(library)
    assert nvml_or_none(2) is None, "this machine has no NVIDIA driver"
    asked: list[tuple[str, ...]] = []

    def smi(*arguments: str) -> SmiAnswer:
        asked.append(arguments)
        return SmiAnswer("Unable to determine the device handle for GPU 0000:2B:00.0: GPU is lost.")

    found = GpuFaultWatch(1, list, smi, nvml_or_none(1)).poll()
    assert [one.kind for one in found] == ["lost"]
    assert asked
