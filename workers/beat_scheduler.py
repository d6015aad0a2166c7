"""How beat rings: in memory, and without waiting for Redis.

Not here: the schedule (`celery_app`).
"""

from __future__ import annotations

import logging
from typing import Any

from celery import Celery
from celery.beat import Scheduler

from app.adapters.celery_wakeups import RingLost, RingSender
from app.adapters.system_entropy import SystemEntropy

log = logging.getLogger(__name__)


class MemoryScheduler(Scheduler):  # type: ignore[misc]
    """Celery's scheduler, which keeps no file; what it would remember is due again anyway."""

    # Celery's way to send, which would wait for Redis before each ring, or end beat without it.
    producer = None

    def __init__(self, app: Celery, **options: Any) -> None:
        super().__init__(app, **options)
        self._sender = RingSender(app.conf.broker_url, SystemEntropy())

    def adjust(self, n: float | None, drift: float = 0.0) -> float | None:
        """Seconds to sleep until the next ring.

        Celery's own wakes up 10 ms early and then asks again and again until the instant has
        come, which costs more than all the rings.
        """
        return n

    def apply_entry(self, entry: Any, producer: Any = None) -> None:
        """Send one ring; while Redis is away it is lost, and workers look by themselves."""
        options = entry.options
        try:
            self._sender.send(entry.task, entry.args, options["queue"], options["expires"])
        except RingLost as error:
            log.warning("ring %s is lost: %s", entry.name, error)
