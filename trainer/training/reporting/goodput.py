"""The goodput ledger: every second of a rank's process is in exactly one bucket.

Lives here: the buckets and the counting. Nothing can be counted twice or lost, because there is one
clock and one bucket open at any moment: ``enter`` closes the one before at the same instant. Not
here: writing it down (``progress.py``), and the bill of the machine, which the control plane makes
from the ``phase`` lines: ``PHASES`` says which phase each bucket is a part of.

The vocabulary is that of Google's and NVIDIA's goodput tools (google/cloud_tpu_goodput; NVIDIA
cluster readiness engine, goodput).
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum

STEPS_COMPARED = 31


class Bucket(StrEnum):
    """What one second was spent on."""

    STARTUP = "startup"  # interpreter, imports, building the model
    RENDEZVOUS = "rendezvous"  # waiting for the other ranks
    RESTORE = "restore"
    DATA_START = "data_start"  # opening the data set, starting its workers
    COMPILE = "compile"  # the first step of a compiled model
    USEFUL_STEP = "useful_step"
    RECOMPUTED_STEP = "recomputed_step"  # of a step that an earlier attempt had done
    DATA_WAIT = "data_wait"  # the step could not begin: its samples were not there
    PAUSE = "pause"  # after a step, as the option step_delay_seconds asks
    EVAL = "eval"
    CHECKPOINT_STALL = "checkpoint_stall"  # training stood still for it
    CHECKPOINT_INFLATION = "checkpoint_inflation"  # steps were slower while it was written
    IDLE = "idle"
    DRAIN = "drain"
    SHUTDOWN = "shutdown"


PHASES = {
    "boot": Bucket.STARTUP,
    "restore": Bucket.RESTORE,
    "compile": Bucket.COMPILE,
    "train": Bucket.USEFUL_STEP,
    "eval": Bucket.EVAL,
    "checkpoint": Bucket.CHECKPOINT_STALL,
    "drain": Bucket.DRAIN,
}
"""The bucket that is open when a phase line has been written. Of the others, rendezvous and
data start are parts of ``boot`` or ``train``; data wait, pause and inflation of ``train``."""


class Ledger:
    """The buckets of one process, in seconds of ``clock`` since ``started_at``.

    ``all_reduce_seconds`` is no bucket but a part of the steps' time: how long a rank of the gang
    has waited, in the mean, for what the others compute.
    """

    def __init__(self, started_at: float, clock: Callable[[], float]) -> None:
        self.started_at = started_at
        self._clock = clock
        self._seconds = dict.fromkeys(Bucket, 0.0)
        self._bucket = Bucket.STARTUP
        self._since = started_at
        self._usual: deque[float] = deque(maxlen=STEPS_COMPARED)
        self.all_reduce_seconds = 0.0

    @property
    def bucket(self) -> Bucket:
        """The one that is open."""
        return self._bucket

    def enter(self, bucket: Bucket) -> Bucket:
        """From now on time belongs to ``bucket``; returns the one before."""
        now = self._clock()
        before = self._bucket
        self._seconds[before] += now - self._since
        self._bucket, self._since = bucket, now
        return before

    @contextmanager
    def spending(self, bucket: Bucket) -> Iterator[None]:
        """Counts what happens inside as ``bucket``, and goes back to the one before."""
        before = self.enter(bucket)
        try:
            yield
        finally:
            self.enter(before)

    def step_took(self, seconds: float, saving: bool) -> None:
        """Moves what a step was slower than usual, while a checkpoint was written, to inflation.

        ``saving``: a checkpoint was on its way to the disk. Usual is the median of the last
        ``STEPS_COMPARED`` steps without one; until there are three, nothing is moved.
        """
        if not saving:
            self._usual.append(seconds)
            return
        if len(self._usual) < 3:
            return
        slower = min(seconds - statistics.median(self._usual), seconds)
        source = self._bucket
        available = self._seconds[source] + self._clock() - self._since
        if slower > 0 and source in (Bucket.USEFUL_STEP, Bucket.RECOMPUTED_STEP):
            moved = min(slower, available)
            self._seconds[source] -= moved
            self._seconds[Bucket.CHECKPOINT_INFLATION] += moved

    def seconds(self) -> dict[str, float]:
        """Every bucket with the open one counted to now; the sum is ``clock() - started_at``."""
        now = self._clock()
        counted = {bucket.value: value for bucket, value in self._seconds.items()}
        counted[self._bucket.value] += now - self._since
        return counted


def goodput(seconds: dict[str, float]) -> float:
    """Useful step time as a share of all time; 0 when no time has passed."""
    total = sum(seconds.values())
    return seconds[Bucket.USEFUL_STEP.value] / total if total > 0 else 0.0
