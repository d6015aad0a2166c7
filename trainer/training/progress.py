"""JSON lines of progress: appended by rank 0, one write each, never synced to disk.

Every line carries ``type`` and ``at``, the seconds on CLOCK_BOOTTIME, which the agent turns into a
timeline. Types: ``phase``, ``step``, ``eval``, ``checkpoint``, ``error``, ``end``. Everything but
the steps is also printed for the person who reads the logs.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any


class Progress:
    """The progress file of one rank; ``path`` None (any rank but 0) writes nothing."""

    def __init__(self, path: Path | None) -> None:
        self._descriptor: int | None = None
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(self, kind: str, /, **values: Any) -> None:
        """Appends one line. Values must be JSON; floats keep their full precision."""
        if self._descriptor is None:
            return
        line = json.dumps({"type": kind, "at": boot_seconds(), **values}) + "\n"
        os.write(self._descriptor, line.encode())
        if kind != "step":
            print(kind, *(f"{key}={value}" for key, value in values.items()), flush=True)

    def phase(self, phase: str, step: int) -> None:
        """Says what the time from now on is spent on: boot, restore, train, eval, ..."""
        self.write("phase", phase=phase, step=step)


def boot_seconds() -> float:
    """Seconds since the machine started, counting sleep: comparable between its processes."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
