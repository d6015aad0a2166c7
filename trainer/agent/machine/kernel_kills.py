"""Whether the kernel ended a process a moment ago because the machine's memory was full.

The kernel counts such ends in /proc/vmstat (`oom_kill`, kernel documentation, Linux 4.13 and
newer), for the whole machine and all of its containers. The count alone does not name the process:
together with a SIGKILL that nobody here has sent it explains one.
"""

from __future__ import annotations

from pathlib import Path

RECENT_SECONDS = 30.0
"""So long after a process was killed, the rest of its command may still take to end."""
VMSTAT = Path("/proc/vmstat")
_BYTES_MAX = 1 << 16


class KernelKills:
    """Looks at the count from the constructor on; `now` is of any clock that does not jump."""

    def __init__(self, vmstat: Path | None = None) -> None:
        self._vmstat = vmstat or VMSTAT
        self._count = self._read()
        self._grew_at: float | None = None

    def look(self, now: float) -> bool:
        """Whether a process was ended so within the last 30 s; False where that is not counted."""
        count = self._read()
        if count is not None:
            if self._count is not None and count > self._count:
                self._grew_at = now
            self._count = count
        return self._grew_at is not None and now <= self._grew_at + RECENT_SECONDS

    def _read(self) -> int | None:
        try:
            with self._vmstat.open("rb") as file:
                lines = file.read(_BYTES_MAX).splitlines()
            return next((int(line[9:]) for line in lines if line.startswith(b"oom_kill ")), None)
        except (OSError, ValueError):
            return None
