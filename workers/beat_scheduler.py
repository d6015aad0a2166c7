"""How beat waits and rings: in memory, without waking up early, without waiting for Redis.

Not here: the schedule (`celery_app`).
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any, Final

from celery import Celery
from celery.beat import Scheduler

from app.adapters.celery_wakeups import celery_message
from app.adapters.redis_list import RedisAway, RedisList
from app.adapters.system_clock import SystemClock
from app.adapters.system_entropy import SystemEntropy

log = logging.getLogger(__name__)

_ANSWER_SECONDS: Final = 1.0


class MemoryScheduler(Scheduler):  # type: ignore[misc]
    """Celery's scheduler without a file: what it would remember is due again anyway.

    It sends as the api does, which spares beat 8 MB of client library.
    """

    # Celery's way to send, which would load that library with the first ring.
    producer = None

    def __init__(self, app: Celery, **options: Any) -> None:
        self._redis = RedisList(app.conf.lowtide_redis_url, _ANSWER_SECONDS)
        self._clock, self._entropy = SystemClock(), SystemEntropy()
        super().__init__(app, **options)

    def adjust(self, n: float | None, drift: float = 0.0) -> float | None:
        """Seconds to sleep until the next ring.

        Celery's own wakes up 10 ms early and then asks again and again until the instant has
        come, which costs more than all the rings.
        """
        return n

    def apply_entry(self, entry: Any, producer: Any = None) -> None:
        """Send one ring; while Redis is away it is lost, and workers look by themselves."""
        options = entry.options
        expires_at = self._clock.now() + timedelta(seconds=options["expires"])
        message = celery_message(
            entry.task, entry.args, options["queue"], expires_at, str(self._entropy.new_id())
        )
        try:
            self._redis.push(options["queue"], message)
        except RedisAway as error:
            log.warning("ring %s is lost: %s", entry.name, error)
