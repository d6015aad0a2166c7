"""How long a trainer that was asked to stop still has: a small file that its agent writes.

LOWTIDE_NOTICE_FILE names it. It appears, as a whole, before SIGTERM is sent, and is replaced when
the time gets shorter: ``{"deadline": 5301.25}``, in seconds of CLOCK_BOOTTIME, which every process
of the machine shares, in containers too. No file: nobody knows.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path

NOTICE_VARIABLE = "LOWTIDE_NOTICE_FILE"
_BYTES_MAX = 4096


def notice_text(deadline: float) -> str:
    """What the file holds. deadline: seconds of CLOCK_BOOTTIME."""
    return json.dumps({"deadline": deadline})


def seconds_left(variables: Mapping[str, str] = os.environ) -> float | None:
    """Seconds until this machine's trainer is ended, 0.0 when they are over; None if unknown."""
    name = variables.get(NOTICE_VARIABLE)
    if not name:
        return None
    try:
        with Path(name).open("rb") as file:
            deadline = json.loads(file.read(_BYTES_MAX))["deadline"]
        left = float(deadline) - time.clock_gettime(time.CLOCK_BOOTTIME)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return max(0.0, left) if math.isfinite(left) else None
