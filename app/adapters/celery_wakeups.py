"""The wakeup port over Celery: one small message on a controller's queue, and how to reach Redis.

Lives here: the ring as the api sends it, and the broker settings that sender and worker share. Not
here: what a worker does with a ring (`workers.tasks`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from celery import Celery
from kombu.exceptions import KombuError

log = logging.getLogger(__name__)

RUN_TASK = "lowtide.run_controller"
"""Run the named controller now."""

GAP_SECONDS = 0.005
"""At most one message per controller in this time."""

_BUSY_SHARE = 20
_PAUSE_SECONDS_MAX = 0.2
_CONNECT_SECONDS = 1.0
_ANSWER_SECONDS = 2.0
_DROP_LOG_SECONDS = 30.0


def broker_settings(redis_url: str) -> dict[str, Any]:
    """Celery settings for both ends: rings that are lost are lost, and nobody waits for ever."""
    return {
        "broker_url": redis_url,
        "broker_transport_options": {
            "socket_connect_timeout": _CONNECT_SECONDS,
            "socket_timeout": _ANSWER_SECONDS,
            "socket_keepalive": True,
        },
        "result_backend": None,
        "task_ignore_result": True,
        "task_default_delivery_mode": "transient",
        "task_create_missing_queues": True,
        "worker_send_task_events": False,
        "task_send_sent_event": False,
        "accept_content": ["json"],
    }


@dataclass(frozen=True)
class Ringable:
    """What a sender must know of a controller: after `expires_seconds` beat has rung anyway."""

    queue: str
    expires_seconds: float


class CeleryWakeups:
    """Implements `app.ports.wakeups.Wakeups` for the api: a thread of its own sends the rings.

    `ring` only notes names; rings that come together are one message. When Redis is away they are
    dropped and counted: beat rings every controller at its period.
    """

    def __init__(self, redis_url: str, controllers: Mapping[str, Ringable]) -> None:
        self._controllers = controllers
        self._celery = Celery("lowtide-rings", set_as_current=False)
        self._celery.conf.update(broker_settings(redis_url))
        self._changed = threading.Condition()
        self._waiting: dict[str, None] = {}
        self._closing = False
        self._thread: threading.Thread | None = None
        self._sent = self._dropped = 0
        self._next_drop_log = 0.0

    @property
    def sent_count(self) -> int:
        """Messages that Redis has taken."""
        return self._sent

    @property
    def dropped_count(self) -> int:
        """Messages that could not be sent."""
        return self._dropped

    def ring(self, controllers: Iterable[str]) -> None:
        """Note the names for the sending thread; unknown ones are left out."""
        names = [name for name in controllers if name in self._controllers]
        with self._changed:
            if self._closing or not names:
                return
            self._waiting.update(dict.fromkeys(names))
            if self._thread is None:
                self._thread = threading.Thread(target=self._send_all, name="rings", daemon=True)
                self._thread.start()
            self._changed.notify()

    def close(self, timeout_seconds: float = 2.0) -> None:
        """Send what waits, for at most the time given, and take no more."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(timeout_seconds)
        self._celery.close()

    def _send_all(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closing)
                names, self._waiting = list(self._waiting), {}
                if not names:
                    return
            begun = time.monotonic()
            for name in names:
                self._send(name)
            # However fast jobs come in, sending takes a twentieth of the time at most.
            pause = _BUSY_SHARE * (time.monotonic() - begun)
            time.sleep(min(max(GAP_SECONDS, pause), _PAUSE_SECONDS_MAX))

    def _send(self, name: str) -> None:
        controller = self._controllers[name]
        try:
            self._celery.send_task(
                RUN_TASK,
                (name,),
                queue=controller.queue,
                expires=controller.expires_seconds,
                ignore_result=True,
                retry=False,
            )
        except (KombuError, OSError) as error:
            self._dropped += 1
            if time.monotonic() >= self._next_drop_log:
                self._next_drop_log = time.monotonic() + _DROP_LOG_SECONDS
                log.warning("rings are dropped, controllers run at their periods: %s", error)
        else:
            self._sent += 1
