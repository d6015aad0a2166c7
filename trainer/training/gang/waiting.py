"""How long a rank waits for what the others compute: the time that no computing hides.

Lives here: the stopwatch and where the wait of a backward pass begins. Not here: the exchanges of
a sharded model (``sharding.py``), and what the seconds mean (``bottleneck_meter.py``).

On a CPU the clock is read. On a GPU events are put into the stream that computes: what lies between
them is the time in which it stood still for the network's stream. Nothing is waited for.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Variable

# Steps whose events the GPU has not come to yet; beyond them nothing more is noted.
EVENTS_MOST = 64


class Waits:
    """The waiting of one rank, between ``begin`` and ``end``. A begin without its end, as an error
    leaves it, is forgotten.
    """

    def __init__(self, device: torch.device) -> None:
        self._uses_events = device.type == "cuda"
        self._seconds = 0.0
        self._began: Any = None
        self._open: deque[tuple[Any, Any]] = deque()

    def watch(self, loss: Tensor) -> None:
        """For gradients that travel in the passes: the wait begins when the backward pass of
        ``loss`` has computed this rank's last one; call ``end`` when ``backward`` has returned.

        Callbacks of a backward pass run at its end in the order in which they were queued. This one
        is queued first of all, that in which all gradients are waited for after it.
        """
        self._began = None
        loss.register_hook(self._queue)  # type: ignore[no-untyped-call]

    def begin(self) -> None:
        """From now on this rank waits."""
        self._began = self._event() if self._uses_events else time.perf_counter()

    def end(self) -> None:
        """What was waited for is there."""
        began, self._began = self._began, None
        if began is None:
            return
        if not self._uses_events:
            self._seconds += time.perf_counter() - began
        elif len(self._open) < EVENTS_MOST:
            self._open.append((began, self._event()))

    def take(self) -> float:
        """Seconds since the last call. On a GPU only of waits that it has come past."""
        while self._open and self._open[0][1].query():
            began, ended = self._open.popleft()
            self._seconds += began.elapsed_time(ended) / 1_000.0
        seconds, self._seconds = self._seconds, 0.0
        return seconds

    def _queue(self, _gradient: Tensor) -> None:
        Variable._execution_engine.queue_callback(self.begin)

    def _event(self) -> Any:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event
