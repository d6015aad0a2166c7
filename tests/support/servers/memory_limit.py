"""The kernel's OOM killer for tests: a control group with too little memory for a process.

Needs root, and a memory controller: version 1 anywhere, or version 2 where the root of the
hierarchy gives it to its groups, as systemd lets it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.servers.embedded import killed_at_the_end, wait_until

_ROOT = Path("/sys/fs/cgroup")
_LIMIT_MEBIBYTES = 32

# Enters the group in argv[1] and takes argv[2] MiB.
_NEIGHBOUR = """
import pathlib, sys, time
pathlib.Path(sys.argv[1], "cgroup.procs").write_text("0")
taken = b"x" * (int(sys.argv[2]) << 20)
time.sleep(600)
"""


class MemoryLimit:
    """One control group; `folder` is where the kernel shows it."""

    def __init__(self, folder: Path, limit_file: str, events_file: str) -> None:
        self.folder = folder
        self._limit = folder / limit_file
        self._events = folder / events_file

    def kill(self, pid: int) -> None:
        """Let a neighbour use up the group's memory; the OOM killer takes this process first.

        It may take the neighbour next, as its memory is the neighbour's.
        """
        self._limit.write_text(str(_LIMIT_MEBIBYTES << 20))
        self._enter(pid)
        Path(f"/proc/{pid}/oom_score_adj").write_text("1000")
        before = self.kills
        neighbour = subprocess.Popen(
            [sys.executable, "-c", _NEIGHBOUR, str(self.folder), str(4 * _LIMIT_MEBIBYTES)]
        )
        with killed_at_the_end(neighbour):
            wait_until(lambda: self.kills > before, "the OOM killer kills")

    @property
    def kills(self) -> int:
        """How many processes the OOM killer has killed here."""
        words = dict(line.split() for line in self._events.read_text().splitlines())
        return int(words["oom_kill"])

    def _enter(self, pid: int) -> None:
        (self.folder / "cgroup.procs").write_text(str(pid))

    @property
    def is_empty(self) -> bool:
        """No process is left in it."""
        return not (self.folder / "cgroup.procs").read_text()


@contextmanager
def memory_limit(name: str) -> Iterator[MemoryLimit]:
    """An empty control group, removed at the end, whose processes must have ended by then.

    Raises AssertionError where there is no memory controller.
    """
    own = dict(
        line.split(":", 2)[1:] for line in Path("/proc/self/cgroup").read_text().splitlines()
    )
    if "memory" in own:  # version 1: below the own group, whose limits hold on
        folder = _ROOT / "memory" / own["memory"].lstrip("/") / name
        files = ("memory.limit_in_bytes", "memory.oom_control")
    else:
        folder = _ROOT / name
        files = ("memory.max", "memory.events")
    folder.mkdir()
    limit = MemoryLimit(folder, *files)
    try:
        assert (folder / files[0]).exists(), f"{folder} has no memory controller"
        yield limit
    finally:
        wait_until(lambda: limit.is_empty, f"{folder} is empty", 20.0)
        folder.rmdir()
