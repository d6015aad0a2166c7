"""JSON lines of progress: appended by rank 0, one write each, never synced to disk.

On the other machines of a gang the first rank writes the phases alone: that machine's agent has no
other way to know what its time is spent on.

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
    """The progress file of one machine; ``path`` None (not its first rank) writes nothing.

    ``phases_only``: this machine does not have rank 0.
    """

    def __init__(self, path: Path | None, phases_only: bool = False) -> None:
        self._phases_only = phases_only
        self._descriptor: int | None = None
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(self, kind: str, /, **values: Any) -> None:
        """Appends one line. Values must be JSON; floats keep their full precision."""
        if self._descriptor is None or (self._phases_only and kind != "phase"):
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
