"""What processes cost, from Linux's /proc: processor time and memory.

Lives here: reading. A server that forks (PostgreSQL) is read with its living children and those
it has reaped. Not here: what is measured while it is read.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
# Fields of /proc/PID/stat after the command's closing bracket (man 5 proc_pid_stat).
_REAPED_USER, _REAPED_SYSTEM = 13, 14
_KIB = 1024


@dataclass(frozen=True)
class Memory:
    """Bytes resident in a process, and its share of them when shared pages are divided up."""

    rss_bytes: int
    pss_bytes: int

    def __add__(self, other: Memory) -> Memory:
        return Memory(self.rss_bytes + other.rss_bytes, self.pss_bytes + other.pss_bytes)


class GoneError(Exception):
    """The process has ended."""


def cpu_seconds(pid: int) -> float:
    """Processor seconds that the process itself has used, all threads that live included."""
    spent = 0
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):
                # Nanoseconds on a core; `stat` only counts hundredths of a second.
                spent += int((task / "schedstat").read_text().split()[0])
    except (FileNotFoundError, ProcessLookupError) as error:
        raise GoneError(f"process {pid} has ended") from error
    return spent / 1e9


def family_cpu_seconds(pid: int) -> float:
    """The same of a server with all its children, living or reaped."""
    stat = _stat(pid)
    reaped = (int(stat[_REAPED_USER]) + int(stat[_REAPED_SYSTEM])) / _TICKS_PER_SECOND
    total = cpu_seconds(pid) + reaped
    for child in children(pid):
        with suppress(GoneError):
            total += cpu_seconds(child)
    return total


def children(pid: int) -> list[int]:
    """Pids of the living children."""
    found: list[int] = []
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):
                found += map(int, (task / "children").read_text().split())
    except (FileNotFoundError, ProcessLookupError) as error:
        raise GoneError(f"process {pid} has ended") from error
    return sorted(found)


def memory(pids: Iterable[int]) -> Memory:
    """What the processes have in memory together."""
    total = Memory(0, 0)
    for pid in pids:
        try:
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except (FileNotFoundError, ProcessLookupError) as error:
            raise GoneError(f"process {pid} has ended") from error
        sizes = {line.split(":")[0]: int(line.split()[1]) * _KIB for line in text.splitlines()[1:]}
        total += Memory(sizes["Rss"], sizes["Pss"])
    return total


def programs_with(text: str, besides: Sequence[int] = ()) -> list[int]:
    """Pids of processes whose command line mentions a text."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) in (*besides, os.getpid()):
            continue
        with suppress(OSError):
            if text.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return sorted(found)


@dataclass(frozen=True)
class Cost:
    """Wall and processor seconds of a stretch of work, by who spent them."""

    wall_seconds: float
    cpu_seconds: dict[str, float]

    def per(self, count: int, *names: str) -> float:
        """Processor microseconds per piece of work, of those named or of all."""
        chosen = names or tuple(self.cpu_seconds)
        return sum(self.cpu_seconds[name] for name in chosen) / max(1, count) * 1e6


class Meter:
    """Reads named clocks of processor seconds at both ends of a `with` block.

    The last clock is read last before and first after, so that it does not count the reading.
    """

    def __init__(self, clocks: dict[str, Callable[[], float]]) -> None:
        self._clocks = clocks
        self._began: dict[str, float] = {}
        self._began_at = 0.0
        self.cost = Cost(0.0, {})

    def __enter__(self) -> Meter:
        self._began = {name: read() for name, read in self._clocks.items()}
        self._began_at = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        wall = time.perf_counter() - self._began_at
        ended = {name: read() for name, read in reversed(self._clocks.items())}
        spent = {name: ended[name] - began for name, began in self._began.items()}
        self.cost = Cost(wall, spent)


def _stat(pid: int) -> list[str]:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError) as error:
        raise GoneError(f"process {pid} has ended") from error
    return text.rpartition(")")[2].split()
