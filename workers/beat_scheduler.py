"""How beat waits: in memory, and without waking up early.

Not here: the schedule (`celery_app`).
"""

from __future__ import annotations

from celery.beat import Scheduler


class MemoryScheduler(Scheduler):  # type: ignore[misc]
    """Celery's scheduler without a file: what it would remember is due again anyway."""

    def adjust(self, n: float | None, drift: float = 0.0) -> float | None:
        """Seconds to sleep until the next ring.

        Celery's own wakes up 10 ms early and then asks again and again until the instant has
        come, which costs more than all the rings.
        """
        return n
