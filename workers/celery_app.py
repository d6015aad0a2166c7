"""Celery as the doorbell: two queues, rings that may be lost, and beat's schedule.

Lives here: the configuration of worker and beat. Not here: what a ring does (`tasks`), on which
threads controllers run (`controller_threads`), or how beat waits (`beat_scheduler`).

A ring is taken off its queue before anything is done with it, is never tried again, expires when
beat has rung anew, and has no result. Workers do not talk to each other and take no remote orders.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final

from celery import Celery
from celery.signals import setup_logging
from kombu.entity import Queue

from app.adapters.celery_wakeups import broker_settings
from app.bootstrap import controller_schedule, redis_url
from app.settings import Settings

QUEUES: Final = ("quick", "cloud")
LOOK_TASK: Final = "lowtide.look_at_controllers"

BEAT_PERIOD_MIN_SECONDS: Final = 5.0
"""What must happen sooner after a commit is rung, and what waits for time has a due time."""

_LOG_LINE: Final = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
_CHATTY: Final = ("celery.app.trace", "celery.worker.strategy", "celery.beat", "kombu")


def make_celery(settings: Settings) -> Celery:
    """The Celery application of a deployment, which also says how its program writes logs.

    Raises SettingsError when Redis is not set.
    """
    periods = {one.name: one.period_seconds for one in controller_schedule(settings)}
    celery = Celery("lowtide", include=["workers.tasks"])
    celery.conf.update(broker_settings(redis_url(settings)))
    celery.conf.update(
        task_queues=[Queue(name) for name in QUEUES],  # type: ignore[no-untyped-call]
        task_default_queue=QUEUES[0],
        task_acks_late=False,
        task_serializer="json",
        # No results, so nothing to clean up at night either.
        result_expires=None,
        timezone="UTC",
        enable_utc=True,
        beat_schedule=beat_schedule(periods),
        beat_scheduler="workers.beat_scheduler:MemoryScheduler",
        beat_max_loop_interval=BEAT_PERIOD_MIN_SECONDS,
        # One thread is enough to hand rings over to the threads of `controller_threads`.
        worker_pool="threads",
        worker_concurrency=1,
        worker_prefetch_multiplier=1,
        worker_enable_remote_control=False,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_pool_limit=1,
    )

    def write_logs(**_: object) -> None:
        write_logs_as(settings.log_level)

    setup_logging.connect(write_logs, weak=False, dispatch_uid="workers.celery_app")
    return celery


def beat_schedule(periods: Mapping[str, float]) -> dict[str, dict[str, Any]]:
    """One message for each period (seconds, by controller), naming all controllers that have it.

    It goes to the quick queue whatever they do: looking at what is due takes only the database.
    """
    groups: dict[float, list[str]] = defaultdict(list)
    for name, seconds in periods.items():
        groups[max(seconds, BEAT_PERIOD_MIN_SECONDS)].append(name)
    return {
        f"every-{period:g}-seconds": {
            "task": LOOK_TASK,
            "schedule": period,
            "args": (names,),
            "options": {"queue": QUEUES[0], "expires": period, "retry": False},
        }
        for period, names in groups.items()
    }


def write_logs_as(level: str) -> None:
    """Lines with a time on stderr; Celery's own only when something is wrong."""
    logging.basicConfig(level=level.upper(), format=_LOG_LINE, datefmt="%H:%M:%S")
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)
