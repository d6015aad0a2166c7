"""Readings of this rank's GPU while it trains: how busy it is, its clock, power and memory.

From NVML, by the package ``nvidia-ml-py`` (the optional extra ``observe``), and from PyTorch's own
allocator. Where there is no GPU, no driver or no package, there are no readings and no errors: they
are a view of the run, never a condition of it. Faults of the GPU are the agent's to watch for.

Numbers of one reading (a driver leaves out what its GPU does not count)::

    gpu_utilization       percent of the time since the last reading in which any kernel ran
    gpu_sm_activity       percent of the multiprocessors that were busy (Hopper and newer)
    gpu_tensor_activity   percent of the time in which tensor cores worked (Hopper and newer)
    gpu_sm_clock_mhz      clock of the multiprocessors
    gpu_power_watts       power that is drawn
    gpu_memory_used_mb    of the whole GPU, by every process on it
    gpu_memory_reserved_mb, gpu_memory_allocated_mb   by PyTorch in this process
    gpu_memory_fragmentation  reserved memory that is split off and idle, 0 to 1
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import torch

MB = 1 << 20
Numbers = dict[str, float]


class GpuReadings:
    """One GPU. ``nvml`` is the module ``pynvml``, ``handle`` its name for the GPU."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml = nvml
        self._handle = handle
        self._last_sample: Any = None
        self._counts_activity = self._supports_activity()

    def read(self) -> Numbers:
        """What the driver tells now; what it does not tell is left out."""
        nvml, handle, numbers = self._nvml, self._handle, {}
        questions: dict[str, Callable[[], float]] = {
            "gpu_utilization": lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu,
            "gpu_sm_clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
            "gpu_power_watts": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1_000,
            "gpu_memory_used_mb": lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used / MB,
        }
        for name, ask in questions.items():
            try:
                numbers[name] = float(ask())
            except nvml.NVMLError:
                continue
        return {**numbers, **self._activity()}

    def _supports_activity(self) -> bool:
        try:
            return bool(self._nvml.nvmlGpmQueryDeviceSupport(self._handle).isSupportedDevice)
        except (self._nvml.NVMLError, AttributeError):
            return False

    def _activity(self) -> Numbers:
        """Means between two samples of the GPU's own counters; {} at the first one."""
        if not self._counts_activity:
            return {}
        nvml = self._nvml
        wanted = {
            "gpu_sm_activity": nvml.NVML_GPM_METRIC_SM_UTIL,
            "gpu_tensor_activity": nvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL,
        }
        try:
            sample = nvml.nvmlGpmSampleGet(self._handle, nvml.nvmlGpmSampleAlloc())
            before, self._last_sample = self._last_sample, sample
            if before is None:
                return {}
            question = nvml.c_nvmlGpmMetricsGet_t()
            question.version = nvml.NVML_GPM_METRICS_GET_VERSION
            question.numMetrics = len(wanted)
            question.sample1, question.sample2 = before, sample
            for place, number in enumerate(wanted.values()):
                question.metrics[place].metricId = number
            answer = nvml.nvmlGpmMetricsGet(question)
            nvml.nvmlGpmSampleFree(before)
        except nvml.NVMLError:
            self._counts_activity = False
            return {}
        return {name: float(answer.metrics[place].value) for place, name in enumerate(wanted)}


def open_readings(device: torch.device) -> GpuReadings | None:
    """Readings of ``device``; None without a GPU, its driver's library or ``nvidia-ml-py``."""
    if device.type != "cuda":
        return None
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        # By name, not by number: CUDA_VISIBLE_DEVICES renumbers what this process sees.
        name = f"GPU-{torch.cuda.get_device_properties(device).uuid}"
        return GpuReadings(pynvml, pynvml.nvmlDeviceGetHandleByUUID(name))
    except (pynvml.NVMLError, AttributeError):
        return None


def allocator_numbers(stats: Mapping[str, Any]) -> Numbers:
    """The memory part of a reading, from ``torch.cuda.memory_stats``; {} before the first use."""
    reserved = float(stats.get("reserved_bytes.all.current", 0))
    if reserved <= 0:
        return {}
    return {
        "gpu_memory_reserved_mb": reserved / MB,
        "gpu_memory_allocated_mb": stats.get("allocated_bytes.all.current", 0) / MB,
        "gpu_memory_fragmentation": stats.get("inactive_split_bytes.all.current", 0) / reserved,
    }


class ReadingThread:
    """Calls ``tell`` with a reading every ``seconds``, on a thread of its own, until closed."""

    def __init__(
        self, read: Callable[[], Numbers], tell: Callable[[Numbers], None], seconds: float
    ) -> None:
        self._read = read
        self._tell = tell
        self._seconds = seconds
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gpu-readings", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread; a reading on its way is waited for, at most a second."""
        self._closing.set()
        self._thread.join(1.0)

    def _run(self) -> None:
        while not self._closing.wait(self._seconds):
            self._tell(self._read())
