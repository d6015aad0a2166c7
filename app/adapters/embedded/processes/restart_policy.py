"""When a crashed process is started again, and when no more.

Not here: starting it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class RestartLimits:
    """Back-off between `first_delay_seconds` and `max_delay_seconds`, doubling at each crash.

    After `max_crashes` within `window_seconds` the process is given up, and so it is after
    `max_start_crashes` while it has never been ready. While a disk is full no crash is counted, and
    a start is tried every `full_disk_delay_seconds`.
    """

    first_delay_seconds: float = 1.0
    max_delay_seconds: float = 30.0
    max_crashes: int = 10
    window_seconds: float = 600.0
    max_start_crashes: int = 3
    full_disk_delay_seconds: float = 10.0


@dataclass(slots=True)
class CrashHistory:
    """The crashes of one process."""

    limits: RestartLimits
    _crashes: deque[float] = field(default_factory=deque)

    def delay_after_crash(self, now_seconds: float, *, was_ready: bool) -> float | None:
        """Record a crash at `now_seconds` (any steady clock); seconds to wait, None to give up."""
        self._crashes.append(now_seconds)
        while self._crashes[0] < now_seconds - self.limits.window_seconds:
            self._crashes.popleft()
        count = len(self._crashes)
        allowed = self.limits.max_crashes if was_ready else self.limits.max_start_crashes
        if count >= allowed:
            return None
        doubled: float = self.limits.first_delay_seconds * 2.0 ** (count - 1)
        return min(self.limits.max_delay_seconds, doubled)

    @property
    def count(self) -> int:
        """Crashes within the window at the last one."""
        return len(self._crashes)
