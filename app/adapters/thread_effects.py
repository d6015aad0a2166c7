"""Effects on a bounded number of threads, behind the effect runner port.

Not here: which controller runs when, and on which threads (the worker's part).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

W = TypeVar("W")


class ThreadEffects:
    """Implements `app.ports.effect_runner.EffectRunner` with at most `threads` tasks at a time.

    The threads are shared by everyone who calls `run_all`, and made when first needed. With one
    thread the caller's own does the work, in order. A task must not call `run_all` itself.
    """

    def __init__(self, threads: int) -> None:
        if threads < 1:
            raise ValueError(f"effects need at least one thread, not {threads}")
        self._pool = (
            None if threads == 1 else ThreadPoolExecutor(threads, thread_name_prefix="effect")
        )

    def run_all(self, task: Callable[[W], None], work: Sequence[W]) -> None:
        """Call `task` on every piece and return when all are done; raises what a task raised."""
        if self._pool is None:
            for piece in work:
                task(piece)
            return
        # Also a single piece goes there, so that the bound holds for all callers together.
        futures = [self._pool.submit(task, piece) for piece in work]
        wait(futures)
        for future in futures:
            future.result()

    def close(self) -> None:
        """Take no more work; tasks that run are not waited for, those that wait are dropped."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
