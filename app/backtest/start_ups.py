"""How long the trainers of replayed jobs take from the start of their process to their first step.

Here: one figure for each job, given or drawn. Not here: what else a restart takes
(`Cell.overhead_hours`), or when there is one (`replay`).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

SECONDS_MAX: Final = 7_200.0
LADDER_STEPS: Final = 8
"""Drawn figures lie on a ladder of so many steps: jobs with equal restarts share value tables."""

GRID_SECONDS: Final = 30
"""And on a grid of this, so that the optimum's own grid needs no finer one."""


@dataclass(frozen=True)
class StartUps:
    """From `least` to `most` seconds, each doubling as likely; equal: fixed. 0: none."""

    least: float = 0.0
    most: float = 0.0

    def of_job(self, group: str, zone: str, start: int) -> float:
        """Seconds of the job that begins there; the same in every run, and for every policy."""
        if self.least == self.most:
            return self.least
        drawn = hashlib.sha256(f"{group}/{zone}/{start}".encode()).digest()
        rung = int.from_bytes(drawn[:8], "big") % (LADDER_STEPS + 1)
        least = self.least or min(self.most, GRID_SECONDS)
        seconds = least * (self.most / least) ** (rung / LADDER_STEPS)
        nearest = float(GRID_SECONDS * round(seconds / GRID_SECONDS))
        return min(self.most, max(self.least, nearest))


NO_START_UPS: Final = StartUps()
