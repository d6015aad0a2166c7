"""The machine's own clock: CLOCK_BOOTTIME never jumps, and goes on while the machine sleeps."""

from __future__ import annotations

import time
from pathlib import Path


def boot_seconds() -> float:
    """Seconds since the machine started."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def boot_id() -> str:
    """The kernel's id of this boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
