"""A worker's parts put together: runtime, controllers, their threads and the due timer.

Not here: Celery, which only brings rings (`tasks`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from app.adapters.system_clock import steady_seconds
from app.adapters.thread_effects import ThreadEffects
from app.bootstrap import build_runtime, open_engine
from app.orchestration.controllers import controllers_by_name
from app.orchestration.frame.controller_frame import AnyController, run_controller
from app.settings import Settings
from workers.controller_threads import ControllerThreads
from workers.due_timer import DueTimer

STOP_SECONDS: Final = 8.0


class WorkerRuntime:
    """Runs controllers when rung and when their rows say so, until stopped."""

    def __init__(self, settings: Settings) -> None:
        self._engine = open_engine(settings, "worker")
        self._threads = ControllerThreads(settings.worker_quick_threads)
        runtime = build_runtime(settings, role="worker", engine=self._engine, wakeups=self._threads)
        controllers = controllers_by_name(runtime)
        self._runtimes = {
            "cloud": runtime,
            # Their whole effect is a transaction: one by one, they never wait for each other.
            "quick": replace(runtime, effects=ThreadEffects(1)),
        }
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
        return run_controller(self._runtimes[controller.queue], controller)
