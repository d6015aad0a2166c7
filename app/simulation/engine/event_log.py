"""What happened in a simulation, line by line, and the digest that two runs must share.

Not here: what is logged (each part of the world says its own).
"""

from __future__ import annotations

import hashlib
from collections import deque

from app.simulation.engine.virtual_clock import VirtualClock

TAIL_LINES = 120


class EventLog:
    """Every line goes into the digest; the last ones are kept for the failure report."""

    def __init__(self, clock: VirtualClock, echo: bool = False) -> None:
        self._clock = clock
        self._echo = echo
        self._hash = hashlib.sha256()
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self.lines = 0

    def write(self, who: str, what: str) -> None:
        """One line, stamped with virtual seconds since the start."""
        line = f"{self._clock.elapsed_seconds:12.6f} {who:<24} {what}"
        self._hash.update(line.encode() + b"\n")
        self._tail.append(line)
        self.lines += 1
        if self._echo:
            print(line)

    @property
    def digest(self) -> str:
        """SHA-256 over all lines so far."""
        return self._hash.hexdigest()

    def tail(self, lines: int = TAIL_LINES) -> list[str]:
        """The newest lines, oldest first."""
        return list(self._tail)[-lines:]
