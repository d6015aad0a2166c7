"""A worker's runtime, and what a ring does in it: it is handed over to the runtime's own threads.

Celery knows one number of threads for all queues, so its single thread only hands over, within
microseconds; the threads of the runtime are kept apart by queue.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable
from typing import Final

from celery import shared_task
from celery.signals import worker_init, worker_shutdown

from app.adapters.celery_wakeups import RUN_TASK
from app.adapters.contract_check import contract_warnings
from app.adapters.system_clock import steady_seconds
from app.bootstrap import build_runtime, open_engine
from app.orchestration.controllers import controllers_by_name
from app.orchestration.frame.controller_frame import AnyController, run_controller
from app.ports.object_store import ObjectStoreError
from app.settings import Settings, SettingsError, load_settings, unknown_variables
from workers.celery_app import LOOK_TASK
from workers.controller_runtimes import ControllerRuntimes
from workers.controller_threads import ControllerThreads
from workers.due_timer import DueTimer

log = logging.getLogger(__name__)

STOP_SECONDS: Final = 8.0


class WorkerRuntime:
    """Runs controllers when rung and when their rows say so, until stopped."""

    def __init__(self, settings: Settings) -> None:
        self._engine = open_engine(settings, "worker")
        self._threads = ControllerThreads(settings.worker_quick_threads)
        runtime = build_runtime(settings, role="worker", engine=self._engine, wakeups=self._threads)
        controllers = controllers_by_name(runtime)
        self._runtimes = ControllerRuntimes(runtime)
        self._due_timer = DueTimer(runtime.begin, controllers, self._threads.notify, steady_seconds)
        self._threads.open(controllers, self._run, self._due_timer.after_run)

    def start(self) -> None:
        """Begin; what is due already runs at once."""
        self._due_timer.start()

    def notify(self, name: str) -> None:
        """Run a controller soon; a name that this release does not know is left alone."""
        self._threads.notify([name])

    def look_at(self, names: Iterable[str]) -> None:
        """Run those of the controllers that are due."""
        self._due_timer.look_at(names)

    def stop(self) -> None:
        """Start nothing more and wait some seconds for what runs; its leases end by themselves."""
        self._due_timer.close(1.0)
        self._threads.close(STOP_SECONDS)
        self._engine.dispose()

    def _run(self, controller: AnyController) -> int:
        return run_controller(self._runtimes.of(controller), controller)


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
        settings = load_settings()
        runtime = WorkerRuntime(settings)
    except (SettingsError, ObjectStoreError) as error:
        # Celery swallows the errors of those who listen, and would run a worker without a runtime.
        print(error, file=sys.stderr)
        raise SystemExit(2) from error
    except Exception as error:
        log.exception("the worker cannot start")
        raise SystemExit(1) from error
    for sentence in (*unknown_variables(), *contract_warnings(settings)):
        log.warning(sentence)
    runtime.start()
    _runtimes.append(runtime)


@worker_shutdown.connect  # type: ignore[untyped-decorator]
def _stop(**_: object) -> None:
    while _runtimes:
        _runtimes.pop().stop()
