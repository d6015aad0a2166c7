"""The stop request: SIGTERM or SIGINT sets a flag that the loop looks at after every step.

Nothing is done inside the signal handler. The ranks agree on the flag in ``distributed.py``, so
one rank's signal stops all of them at the same step.

Before its first step an attempt has nothing to save, but may be deep in a call that takes minutes:
meeting the other ranks, restoring, compiling. A thread of its own then ends the process, some
seconds after a signal that nobody came to see.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType

PR_SET_PDEATHSIG = 1
EARLY_SECONDS = 5.0


class StopRequest:
    """Whether this rank was asked to stop. Asking again changes nothing."""

    def __init__(self) -> None:
        self.requested = False
        self._begun = threading.Event()
        self._seen_fd = -1

    def listen(self) -> None:
        """Installs the handlers. Call before the slow imports: an early signal must not kill."""
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, self._on_signal)

    def end_early_by(self, end: Callable[[], None], seconds: float = EARLY_SECONDS) -> None:
        """Until ``work_begun``, a signal is followed by ``end`` when ``seconds`` have passed.

        ``end`` runs in another thread and does not return. Python's own handlers run between two
        instructions of the main thread, so never inside a long call: the C-level wake-up does.
        """
        self._seen_fd, told_fd = os.pipe()
        os.set_blocking(told_fd, False)
        signal.set_wakeup_fd(told_fd, warn_on_full_buffer=False)
        if self.requested:  # before the pipe was there
            os.write(told_fd, bytes([signal.SIGTERM]))
        threading.Thread(
            target=self._watch, args=(end, seconds), name="early-stop", daemon=True
        ).start()

    @property
    def nothing_to_save(self) -> bool:
        """Whether this rank was asked to stop, and no step was made yet."""
        return self.requested and not self._begun.is_set()

    def work_begun(self) -> None:
        """A step was made that is not saved yet: from now on only the loop ends the run."""
        self._begun.set()

    def _watch(self, end: Callable[[], None], seconds: float) -> None:
        while not self._begun.is_set():
            told = os.read(self._seen_fd, 64)
            if not {signal.SIGTERM, signal.SIGINT}.intersection(told):
                continue
            self.requested = True
            if not self._begun.wait(seconds):
                end()

    def _on_signal(self, _signum: int, _frame: FrameType | None) -> None:
        self.requested = True


def dump_stacks_on_signal() -> None:
    """SIGUSR1 writes the stacks of all threads to standard error and training goes on.

    For a rank that stands still: the stacks are read at once, also where a call keeps the
    interpreter's lock, so that a thread that runs meanwhile may end the process with SIGSEGV.
    Source: CPython's faulthandler, which stops no other thread.
    """
    faulthandler.register(signal.SIGUSR1, all_threads=True, chain=False)


def die_with_launcher() -> None:
    """SIGKILLs this rank when the launcher that started it is gone.

    torchrun puts each rank into a session of its own, so that a SIGKILL to torchrun's process
    group leaves the ranks running. Source: prctl(2), PR_SET_PDEATHSIG; where the C library has no
    prctl (not Linux) nothing is done.
    """
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
