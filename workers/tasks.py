"""What a ring does in a worker: it is handed over to the worker's own threads.

Celery knows one number of threads for all queues, so its single thread only hands over, within
microseconds; the threads of `runtime` are kept apart by queue. Not here: configuration
(`celery_app`).
"""

from __future__ import annotations

import logging
import sys

from celery import shared_task
from celery.signals import worker_init, worker_shutdown

from app.adapters.celery_wakeups import RUN_TASK
from app.ports.object_store import ObjectStoreError
from app.settings import SettingsError, load_settings, unknown_variables
from workers.celery_app import LOOK_TASK
from workers.worker_runtime import WorkerRuntime

log = logging.getLogger(__name__)

_runtimes: list[WorkerRuntime] = []


@shared_task(name=RUN_TASK, ignore_result=True)  # type: ignore[untyped-decorator]
def notify_controller(name: str) -> None:
    """A commit made work for this controller: run it."""
    for runtime in _runtimes:
        runtime.notify(name)


@shared_task(name=LOOK_TASK, ignore_result=True)  # type: ignore[untyped-decorator]
def look_at_controllers(names: list[str]) -> None:
    """The period of these controllers has passed: run those that are due by their rows."""
    for runtime in _runtimes:
        runtime.look_at(names)


@worker_init.connect  # type: ignore[untyped-decorator]
def _start(**_: object) -> None:
    # Before the broker is reached: due times are kept without it.
    try:
        runtime = WorkerRuntime(load_settings())
    except (SettingsError, ObjectStoreError) as error:
        # Celery swallows the errors of those who listen, and would run a worker without a runtime.
        print(error, file=sys.stderr)
        raise SystemExit(2) from error
    except Exception as error:
        log.exception("the worker cannot start")
        raise SystemExit(1) from error
    for sentence in unknown_variables():
        log.warning(sentence)
    runtime.start()
    _runtimes.append(runtime)


@worker_shutdown.connect  # type: ignore[untyped-decorator]
def _stop(**_: object) -> None:
    while _runtimes:
        _runtimes.pop().stop()
