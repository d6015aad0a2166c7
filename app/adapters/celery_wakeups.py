"""The wakeup port over Celery: one small message on a controller's queue, and how to reach Redis.

Lives here: how api and beat send a ring, and the broker settings of the worker that takes it. Not
here: what a worker does with a ring (`workers.tasks`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from celery import Celery
from kombu.exceptions import KombuError
from redis import RedisError

from app.ports.entropy import Entropy

log = logging.getLogger(__name__)

RUN_TASK: Final = "lowtide.run_controller"
"""Run the named controller now."""

GAP_SECONDS: Final = 0.005
"""At most one message per controller in this time."""

_BUSY_SHARE: Final = 20
_PAUSE_SECONDS_MAX: Final = 0.2
_ANSWER_SECONDS: Final = 1.0
_DROP_LOG_SECONDS: Final = 30.0


def broker_settings(redis_url: str) -> dict[str, Any]:
    """Celery's settings for reaching Redis: nobody waits for ever, and nothing is kept."""
    return {
        "broker_url": _kombu_url(redis_url),
        "broker_transport_options": {
            "socket_connect_timeout": _ANSWER_SECONDS,
            "socket_timeout": 5.0,
            "socket_keepalive": True,
        },
        "result_backend": None,
        "task_ignore_result": True,
        "worker_send_task_events": False,
        "task_send_sent_event": False,
        "accept_content": ["json"],
    }


class RingLost(Exception):
    """Redis has not taken a ring; the text says why."""


class RingSender:
    """Sends task calls through Celery: one try each, and a second at most for each answer."""

    def __init__(self, redis_url: str, entropy: Entropy) -> None:
        settings = broker_settings(redis_url)
        # kombu connects for as long as it takes, unless told otherwise.
        settings["broker_transport_options"] |= {
            "socket_timeout": _ANSWER_SECONDS,
            "max_retries": 0,
        }
        self._celery = Celery("lowtide-rings", set_as_current=False)
        self._celery.conf.update(settings, broker_pool_limit=1)
        self._entropy = entropy

    def send(
        self, task: str, arguments: Sequence[object], queue: str, expires_seconds: float
    ) -> None:
        """Put a task call on its queue. Raises RingLost; it may then be there or not."""
        try:
            self._celery.send_task(
                task,
                arguments,
                task_id=str(self._entropy.new_id()),
                queue=queue,
                expires=expires_seconds,
                retry=False,
                ignore_result=True,
            )
        except (KombuError, RedisError, OSError) as error:
            raise RingLost(str(error)) from error

    def close(self) -> None:
        """Hang up."""
        self._celery.close()


@dataclass(frozen=True)
class Notifiable:
    """What a sender must know of a controller: after `expires_seconds` beat has rung anyway."""

    queue: str
    expires_seconds: float


class CeleryWakeups:
    """Implements `app.ports.wakeups.Wakeups` for the api: a thread of its own sends the rings.

    `ring` only notes names; rings that come together are one message. When Redis is away they are
    dropped and counted: beat rings every controller at its period.
    """

    def __init__(
        self, redis_url: str, controllers: Mapping[str, Notifiable], entropy: Entropy
    ) -> None:
        self._sender = RingSender(redis_url, entropy)
        self._controllers = controllers
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

    def notify(self, controllers: Iterable[str]) -> None:
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
        self._sender.close()

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
            self._sender.send(RUN_TASK, (name,), controller.queue, controller.expires_seconds)
        except RingLost as error:
            self._dropped += 1
            if time.monotonic() >= self._next_drop_log:
                self._next_drop_log = time.monotonic() + _DROP_LOG_SECONDS
                log.warning("rings are dropped, controllers run at their periods: %s", error)
        else:
            self._sent += 1


def _kombu_url(redis_url: str) -> str:
    """kombu calls a Unix socket `redis+socket://` and its database a virtual host."""
    parts = urlsplit(redis_url)
    if parts.scheme != "unix":
        return redis_url
    database = parse_qs(parts.query).get("db", ["0"])[-1]
    return f"redis+socket://{parts.netloc}{parts.path}?virtual_host={database}"
