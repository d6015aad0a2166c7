"""How many cores this process may use."""

from __future__ import annotations

import os
import sys


def usable_cores() -> int:
    """Those it is bound to, where the system can tell."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
