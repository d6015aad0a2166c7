"""Saving beside training: a copy while training stands still, the rest in a thread of its own.

One checkpoint is on its way at a time, a piece after the other (``writing.py``). The thread gives
way to training, so it is at a lower priority, which nobody but root can raise again: when training
waits, training's own thread takes over where the other one has stopped. Both spend their time in
calls that do not hold the GIL (numpy's loops, SHA-256, write, fsync).
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trainer.training.checkpoint import manifest as manifests
from trainer.training.checkpoint.folder import CheckpointFolder
from trainer.training.checkpoint.layout import Layout, State, lay_out, state_of
from trainer.training.checkpoint.snapshot import Snapshot
from trainer.training.checkpoint.writing import Saved, WriteJob, Writer, Writing

# How the thread gives way to training.
_NICE = 10
# Of the time that a save takes; the rest is hashing before and committing after it.
_WRITING_PART = 0.75


@dataclass(frozen=True)
class InFlight:
    """A save on its way. ``left_seconds``, ``whole_seconds``: until it is durable from now on, and
    from its beginning; predicted from the save before, or from what was written so far.
    """

    step: int
    left_seconds: float
    whole_seconds: float


class CheckpointEngine:
    """Of one rank. ``save``, ``prepare`` and ``finish`` are called by training's thread alone."""

    def __init__(self, folder: CheckpointFolder, writer: Writer = Writer()) -> None:
        self.folder = folder
        self.writer = writer
        self._held: tuple[Layout, Snapshot] | None = None
        self._thread: threading.Thread | None = None
        self._results: deque[Saved] = deque()
        self._orders: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._idle = threading.Event()
        self._idle.set()
        self._is_saving = False
        self._count = 0
        self._writing: Writing | None = None
        self._taken_over = threading.Event()
        self._seconds_per_byte: float | None = None

    @property
    def busy(self) -> bool:
        """Whether a checkpoint is still on its way; memory that is made ready is none."""
        return self._is_saving and not self._idle.is_set()

    def prepare(
        self, trees: Mapping[str, Any], own: Mapping[str, Tensor], uncut: Collection[str] = ()
    ) -> None:
        """Allocates the memory for such a state in the background, so that no save waits for it."""
        self._join()
        state = state_of(trees, own, uncut)

        def allocate() -> None:
            # What fails here fails again in `save`, where somebody can be told.
            with contextlib.suppress(Exception):
                self._memory_for(state)

        self._start(allocate)

    def save(
        self,
        header: dict[str, Any],
        trees: Mapping[str, Any],
        own: Mapping[str, Tensor],
        *,
        uncut: Collection[str] = (),
        best: bool = False,
        hurried: bool = False,
    ) -> None:
        """Takes the state as it is now and returns; ``hurried`` returns when it is durable.

        header: the manifest without what describes files; ``step`` and ``final`` at least.
        trees: name -> nested plain values and tensors, alike on all ranks. own: this rank's own
        tensors, written beside the last tree. uncut: tensors that only the first rank is to write.
        A save that is still on its way is waited for.
        Raises ``TypeError`` for what a checkpoint cannot hold; what goes wrong later is a result.
        """
        self._join()
        asked_at = time.monotonic()
        state = state_of(trees, own, uncut)
        layout, snapshot = self._memory_for(state)
        snapshot.take(layout.sources(state))
        self._count += 1
        order = WriteJob(
            header={"format": manifests.FORMAT, **header, "torch": torch.__version__},
            document=state.document,
            layout=layout,
            snapshot=snapshot,
            temporary=self.folder.temporary(header["step"], self.writer.fence, self._count),
            number=self._count,
            best=best,
            hurried=hurried,
            asked_at=asked_at,
            stall_seconds=time.monotonic() - asked_at,
        )
        writing = self._writing = Writing(order, self.folder, self.writer)
        if hurried:
            self._work_off(writing)
        else:
            self._is_saving = True
            self._start(lambda: self._work_off(writing, self._taken_over))

    def in_flight(self) -> InFlight | None:
        """What is on its way, as far as can be foretold; None if nothing is."""
        writing = self._writing
        if not self.busy or writing is None or writing.result is not None:
            return None
        order = writing.order
        done, size = writing.written_bytes, max(1, order.bytes)
        spent = time.monotonic() - order.asked_at
        pace = self._seconds_per_byte
        if pace is None:
            # Too long rather than too short: hashing comes before the first byte.
            pace = spent / max(done, size // 16, 1)
        whole = pace * size
        left = max(whole - spent, _WRITING_PART * pace * (size - done), 0.0)
        return InFlight(order.header["step"], left, whole)

    def whole_seconds(self) -> float | None:
        """How long a save of the newest state takes, by the one before; None if there was none."""
        if self._seconds_per_byte is None or self._writing is None:
            return None
        return self._seconds_per_byte * self._writing.order.bytes

    def take_over(self, keep: bool) -> None:
        """Goes on with what is on its way, in this thread: to its end, or drops it."""
        self._taken_over.set()
        self._idle.wait()
        self._taken_over.clear()
        writing = self._writing
        if self._is_saving and writing is not None and writing.result is None:
            if keep:
                self._work_off(writing)
            else:
                writing.drop()
        self._is_saving = False

    def finish(self, seconds: float | None = None) -> None:
        """Waits until nothing is on its way, or for so many seconds."""
        if self._idle.wait(seconds):
            self._is_saving = False

    def take_results(self) -> list[Saved]:
        """How the saves went that ended since the last call."""
        results = []
        while self._results:
            results.append(self._results.popleft())
        return results

    def _memory_for(self, state: State) -> tuple[Layout, Snapshot]:
        """The places of such a state, and the memory; made anew only when it has changed."""
        if self._held is None or not self._held[0].fits(state):
            layout = lay_out(state, self.writer.part, self.writer.parts)
            if self._held is not None:
                self._held[1].close()
            self._held = layout, Snapshot(layout.images)
        return self._held

    def _start(self, work: Callable[[], None]) -> None:
        """Has the thread do it. Its start is waited for only once: it may be slow to get a core."""
        self._idle.clear()
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="checkpoint", daemon=True)
            self._thread.start()
        self._orders.put(work)

    def _serve(self) -> None:
        _give_way()
        while True:
            work = self._orders.get()
            try:
                work()
            finally:
                self._idle.set()

    def _join(self) -> None:
        self._idle.wait()
        self._is_saving = False

    def _work_off(self, writing: Writing, stop: threading.Event | None = None) -> None:
        """To its end, which leaves a result behind in any case, or until ``stop``."""
        while stop is None or not stop.is_set():
            if not writing.advance():
                break
        result = writing.result
        if result is not None:
            if result.error is None:
                self._seconds_per_byte = result.seconds / max(1, writing.order.bytes)
            self._results.append(result)


def _give_way() -> None:
    """On Linux a thread has a priority of its own. Source: setpriority(2), "C library/kernel"."""
    try:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
    except (AttributeError, OSError):
        pass
