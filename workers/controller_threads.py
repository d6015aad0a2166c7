"""The threads on which a worker runs controllers: some for `quick` ones, others for `cloud` ones.

Lives here: turns. A controller that is rung while it waits for a thread is not rung twice; rung
while it runs, it runs once more. So rings never pile up, and since a cloud controller has at most
four runs at a time, slow clouds cannot take the threads of the queue. A run lasts as long as its
slowest call, so three calls of one controller may hang and hold up no other; a fourth one would,
until the first of them has reached its time limit. Not here: what a run does
(`app.orchestration.frame.controller_frame`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Final

from app.orchestration.frame.controller_frame import AnyController
from app.storage.session.storage_errors import RowsLocked

log = logging.getLogger(__name__)

RUNS_MAX: Final = {"quick": 1, "cloud": 4}

Run = Callable[[AnyController], int]
AfterRun = Callable[[str, int | None], None]


@dataclass(slots=True)
class _Turn:
    """One controller: runs that go on, whether one waits for a thread, whether one must follow."""

    controller: AnyController
    running: int = 0
    waiting: bool = False
    again: bool = False


class ControllerThreads:
    """Implements `app.ports.wakeups.Wakeups` inside the worker: a ring is a run in this process.

    Rings before `open` and after `close` are lost, as rings may be.
    """

    def __init__(self, quick_threads: int) -> None:
        self._quick_threads = quick_threads
        self._lock = threading.Lock()
        self._turns: dict[str, _Turn] = {}
        self._pools: dict[str, ThreadPoolExecutor] = {}
        self._futures: set[Future[None]] = set()
        self._run: Run | None = None
        self._after_run: AfterRun | None = None

    def open(self, controllers: Mapping[str, AnyController], run: Run, after_run: AfterRun) -> None:
        """Begin. `run` gives how many pieces of work it took; `after_run` gets that number, or
        None when the run failed.
        """
        clouds = sum(1 for controller in controllers.values() if controller.queue == "cloud")
        with self._lock:
            self._run, self._after_run = run, after_run
            self._pools = {
                "quick": ThreadPoolExecutor(self._quick_threads, thread_name_prefix="quick"),
                "cloud": ThreadPoolExecutor(
                    max(1, RUNS_MAX["cloud"] * clouds), thread_name_prefix="cloud"
                ),
            }
            self._turns = {name: _Turn(controller) for name, controller in controllers.items()}

    def notify(self, controllers: Iterable[str]) -> None:
        """Give the named controllers a run each; never waits."""
        with self._lock:
            for name in controllers:
                turn = self._turns.get(name)
                if turn is None:
                    continue
                if turn.running < RUNS_MAX[turn.controller.queue]:
                    self._hand_over(turn)
                else:
                    turn.again = True

    def close(self, timeout_seconds: float) -> bool:
        """Take no more rings and wait for the runs that go on; False when some still do."""
        with self._lock:
            self._turns = {}
            left = set(self._futures)
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)
        return not wait(left, timeout_seconds).not_done

    def _hand_over(self, turn: _Turn) -> None:
        """Let a thread take the turn; the lock is held."""
        if turn.waiting:
            return
        turn.waiting = True
        future = self._pools[turn.controller.queue].submit(self._take, turn)
        self._futures.add(future)
        future.add_done_callback(self._futures.discard)

    def _take(self, turn: _Turn) -> None:
        with self._lock:
            turn.waiting = False
            turn.running += 1
        worked = self._run_once(turn.controller)
        with self._lock:
            turn.running -= 1
            if turn.again and self._turns:
                turn.again = False
                self._hand_over(turn)
        if self._after_run is not None:
            self._after_run(turn.controller.name, worked)

    def _run_once(self, controller: AnyController) -> int | None:
        try:
            return 0 if self._run is None else self._run(controller)
        except RowsLocked as error:
            log.warning("controller %s will run again: %s", controller.name, error, exc_info=True)
            return None
        except Exception as error:
            # Most often the database is away, which every controller would tell at length.
            first_line = str(error).split("\n", 1)[0]
            log.error("controller %s: %s: %s", controller.name, type(error).__name__, first_line)
            log.debug("controller %s failed", controller.name, exc_info=True)
            return None
