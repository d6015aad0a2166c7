"""The stop request: SIGTERM or SIGINT sets a flag that the loop looks at after every step.

Nothing is done inside the signal handler. The ranks agree on the flag in ``distributed.py``, so
one rank's signal stops all of them at the same step.
"""

from __future__ import annotations

import ctypes
import faulthandler
import signal
from types import FrameType

PR_SET_PDEATHSIG = 1


class StopRequest:
    """Whether this rank was asked to stop. Asking again changes nothing."""

    def __init__(self) -> None:
        self.requested = False

    def listen(self) -> None:
        """Installs the handlers. Call before the slow imports: an early signal must not kill."""
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, self._on_signal)

    def _on_signal(self, _signum: int, _frame: FrameType | None) -> None:
        self.requested = True


def dump_stacks_on_signal() -> None:
    """SIGUSR1 writes the stacks of all threads to standard error and training goes on."""
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
