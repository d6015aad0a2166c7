"""JSON lines of progress: appended by rank 0, one write each, never synced to disk.

On the other machines of a gang the first rank writes the phases alone: that machine's agent has no
other way to know what its time is spent on.

Every line carries ``type`` and ``at``, the seconds on CLOCK_BOOTTIME, which the agent turns into a
timeline. Types: ``phase``, ``step``, ``eval``, ``epoch``, ``checkpoint``, ``gpu``, ``verdict``,
``profile``, ``goodput``, ``error``, ``end`` (docs/observing.md). What is not written often is also
printed for the person who reads the logs.

The goodput ledger is kept here too, on every rank, because the phases are what moves it.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trainer.training.reporting.goodput import PHASES, Bucket, Ledger, goodput

# Writing a line at a time costs a quick step more than the step's own bookkeeping.
STEP_LINES_SECONDS = 0.1
_UNPRINTED = frozenset({"step", "gpu", "goodput"})
_TAIL_BYTES = 1 << 20

Sink = Callable[[str, dict[str, Any]], None]


class ProgressLog:
    """The progress file of one machine; ``path`` None (not its first rank) writes nothing.

    ``phases_only``: this machine does not have rank 0. ``reached_step``: the last step that an
    earlier attempt finished; doing it again is not useful time. ``step`` is the newest of this one;
    ``prints`` may be set to False where a sink talks to the person instead.
    """

    def __init__(self, path: Path | None, phases_only: bool = False, reached_step: int = 0) -> None:
        self.ledger = Ledger(process_started_at(), boot_seconds)
        self.step = 0
        self.prints = True
        self._reached_step = reached_step
        self._phases_only = phases_only
        self._descriptor: int | None = None
        self._sinks: list[Sink] = []
        self._waiting: list[tuple[str, float, dict[str, Any]]] = []
        self._written_at = 0.0
        self._is_torn = False
        # Another thread writes the readings of the GPUs; lines stay in the order of their times.
        self._lock = threading.Lock()
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    @property
    def is_told(self) -> bool:
        """Whether lines of every type are written here."""
        return self._descriptor is not None and not self._phases_only

    def also_tell(self, sink: Sink) -> None:
        """Hands every line from now on to ``sink`` too, as (type, values), where one is written."""
        self._sinks.append(sink)

    def write(self, kind: str, /, **values: Any) -> None:
        """Appends one line. Values must be JSON; floats keep their full precision.

        Lines of steps that follow each other within ``STEP_LINES_SECONDS`` are written together, at
        the latest before any other line: a killed process loses no step that a checkpoint holds.
        """
        if kind == "step":
            self._stepped(values["step"])
        elif kind == "end":
            self.ledger.enter(Bucket.SHUTDOWN)
        if self._descriptor is None or (self._phases_only and kind != "phase"):
            return
        at = boot_seconds()
        with self._lock:
            self._waiting.append((kind, at, values))
            if kind != "step" or at - self._written_at >= STEP_LINES_SECONDS:
                self._written_at = at
                self._write_waiting(self._descriptor)
        if self.prints and kind == "verdict":
            print(values["sentence"], flush=True)
        elif self.prints and kind not in _UNPRINTED:
            told = (f"{key}={_shown(value)}" for key, value in values.items())
            print(*([] if kind in values else [kind]), *told, flush=True)

    def _write_waiting(self, descriptor: int) -> None:
        waiting, self._waiting = self._waiting, []
        lines = [
            json.dumps({"type": kind, "at": at, **values}) + "\n" for kind, at, values in waiting
        ]
        self._append(descriptor, "".join(lines).encode())
        for sink in self._sinks:
            for kind, _, values in waiting:
                sink(kind, values)

    def _append(self, descriptor: int, content: bytes) -> None:
        """Lines that a full disk does not take are lost; the ones after it are whole again."""
        content = b"\n" + content if self._is_torn else content
        try:
            self._is_torn = os.write(descriptor, content) < len(content)
        except OSError:
            return

    def phase(self, phase: str, step: int) -> None:
        """Says what the time from now on is spent on: boot, restore, train, eval, ..."""
        again = phase == "train" and step < self._reached_step
        self.ledger.enter(Bucket.RECOMPUTED_STEP if again else PHASES.get(phase, Bucket.IDLE))
        self.write("phase", phase=phase, step=step)

    def write_goodput(self, step: int, final: bool) -> None:
        """Writes the ledger as it stands; the buckets sum to ``total_seconds``."""
        seconds = self.ledger.seconds()
        self.write(
            "goodput",
            step=step,
            goodput=goodput(seconds),
            total_seconds=sum(seconds.values()),
            buckets=seconds,
            all_reduce_seconds=self.ledger.all_reduce_seconds,
            final=final,
        )
        if final and self.prints and self.is_told:
            print(_in_words(seconds, self.ledger.all_reduce_seconds), flush=True)

    def _stepped(self, step: int) -> None:
        self.step = step
        if step >= self._reached_step and self.ledger.bucket is Bucket.RECOMPUTED_STEP:
            self.ledger.enter(Bucket.USEFUL_STEP)


def boot_seconds() -> float:
    """Seconds since the machine started, counting sleep: comparable between its processes."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def process_started_at() -> float:
    """When this process began, in ``boot_seconds``; now, where the kernel does not tell.

    Source: proc_pid_stat(5), field 22, in clock ticks since boot.
    """
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        started = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return boot_seconds()
    return min(started, boot_seconds())


def reached_step(progress_file: Path, variables: Mapping[str, str]) -> int:
    """The last step that an earlier attempt finished, as far as anybody here knows; else 0.

    From LOWTIDE_REACHED_STEP, and from the lines that are in the progress file already. Without
    either, a step that is done again counts as useful: the control plane's own statement, which
    knows every attempt, is then the better one.
    """
    told = variables.get("LOWTIDE_REACHED_STEP", "")
    reached = int(told) if told.isascii() and told.isdigit() else 0
    try:
        with progress_file.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            lines = file.read(_TAIL_BYTES).splitlines()
    except OSError:
        return reached
    return max([reached, *map(_finished_step, lines)])


def _in_words(seconds: Mapping[str, float], all_reduce_seconds: float) -> str:
    spent = sorted(((each, name) for name, each in seconds.items() if each >= 0.05), reverse=True)
    parts = ", ".join(f"{name.replace('_', ' ')} {each:,.1f} s" for each, name in spent)
    if all_reduce_seconds >= 0.05:
        parts += f"; of the steps {all_reduce_seconds:,.1f} s waiting for other ranks"
    total = sum(seconds.values())
    return f"goodput {100 * goodput(dict(seconds)):.1f} % of {total:,.1f} s: {parts}"


def _shown(value: Any) -> Any:
    """A float with six digits: the file alone needs all of them."""
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _finished_step(line: bytes) -> int:
    try:
        document = json.loads(line)
    except ValueError:
        return 0
    if not isinstance(document, dict) or document.get("type") != "step":
        return 0
    step = document.get("step")
    return step if isinstance(step, int) else 0
