"""Reads the trainer's progress file as it grows; tolerant of whatever a user command writes.

Lives here: the tail and the parsing of one line. Not here: what a step means (`supervisor`).
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from trainer.protocol.agent_report import MachinePhase

READ_BYTES_MAX = 1 << 20
END_READ_BYTES_MAX = 16 << 20
LINE_BYTES_MAX = 64 << 10
METRICS_MAX = 64
STEPS_PER_POLL_MAX = 50
SAMPLED_LINES_MAX = 4_000
"""Of more lines than this at once, only so many are parsed."""
_RARE = re.compile(rb'"type"\s*:\s*"(?:phase|checkpoint_failed)"')
"""Lines that are never left out of a sample."""
_POINT_TYPES = frozenset({"step", "eval", "gpu", "verdict"})
_NOT_METRICS = frozenset({"type", "step", "total_steps", "at"})


@dataclass(frozen=True)
class StepLine:
    """A step, or a score or reading at a step; every further finite number of it is a metric."""

    step: int
    total_steps: int | None = None
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class PhaseLine:
    """The trainer entered a phase at `at` seconds of CLOCK_BOOTTIME (None: now)."""

    phase: MachinePhase
    at: float | None = None
    step: int | None = None


@dataclass(frozen=True)
class SaveFailedLine:
    """The trainer could not write a checkpoint; `disk_full`: because no room was left for it."""

    step: int | None = None
    disk_full: bool = False


ProgressLine = StepLine | PhaseLine | SaveFailedLine


def parse_line(line: bytes) -> ProgressLine | None:
    """One line, or None for anything that is not a step, score or phase."""
    if len(line) > LINE_BYTES_MAX:
        return None
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    kind, step = document.get("type"), _whole(document.get("step"))
    if kind == "phase":
        known = {phase.value: phase for phase in MachinePhase}
        phase = known.get(str(document.get("phase")))
        return PhaseLine(phase, _number(document.get("at")), step) if phase else None
    if kind == "checkpoint_failed":
        return SaveFailedLine(step, document.get("disk_full") is True)
    if kind not in _POINT_TYPES or step is None:
        return None
    metrics: dict[str, float] = {}
    for key, value in document.items():
        number = _number(value)
        if key not in _NOT_METRICS and number is not None and len(metrics) < METRICS_MAX:
            metrics[key[:100]] = number
    return StepLine(step, _whole(document.get("total_steps")), metrics)


class ProgressTail:
    """Follows one file from its beginning; a file that is not there yet is empty."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rest = b""
        self.offset = 0

    def poll(self, read_max: int = READ_BYTES_MAX) -> list[ProgressLine]:
        """New whole lines of at most `read_max` bytes; of many steps a sample that keeps the last.

        A user's command may write faster than its lines can be parsed, so only the sample is.
        """
        try:
            with self._path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                if size < self.offset:  # the command started its file anew
                    self.offset, self._rest = 0, b""
                file.seek(self.offset)
                content = file.read(read_max)
        except OSError:
            return []
        self.offset += len(content)
        *lines, self._rest = (self._rest + content).split(b"\n")
        self._rest = self._rest[: LINE_BYTES_MAX + 1]
        return _parsed(lines)

    def poll_to_end(self, seconds: float, clock: Callable[[], float]) -> Iterator[ProgressLine]:
        """Everything up to the end of a file that nobody writes any more.

        When the time is over, only the newest lines are read: the last step is true then, too.
        """
        until = clock() + seconds
        while clock() < until:
            before = self.offset
            yield from self.poll(END_READ_BYTES_MAX)
            if self.offset == before:
                break
        try:
            size = self._path.stat().st_size
        except OSError:
            size = 0
        if size > self.offset:
            self.offset, self._rest = max(self.offset, size - READ_BYTES_MAX), b""
            yield from self.poll()
        if self._rest:  # a last line that lacks its end, as of a killed or a full disk's writer
            last, self._rest = parse_line(self._rest), b""
            if last is not None:
                yield last


def _parsed(lines: list[bytes]) -> list[ProgressLine]:
    """The lines that mean something; of very many the newest step, a sample, and every phase."""
    stride = max(1, -(-len(lines) // SAMPLED_LINES_MAX))
    newest = len(lines) - 1
    kept: list[ProgressLine] = []
    has_newest = False
    for index in range(newest, -1, -1):
        line = lines[index]
        if has_newest and (newest - index) % stride and not _RARE.search(line):
            continue
        parsed = parse_line(line)
        if parsed is not None:
            kept.append(parsed)
            has_newest = has_newest or isinstance(parsed, StepLine)
    return _sampled(kept[::-1])


def _sampled(lines: list[ProgressLine]) -> list[ProgressLine]:
    steps = [index for index, line in enumerate(lines) if isinstance(line, StepLine)]
    if len(steps) <= STEPS_PER_POLL_MAX:
        return lines
    stride = -(-len(steps) // STEPS_PER_POLL_MAX)
    kept = set(steps[::-1][::stride])
    return [
        line for index, line in enumerate(lines) if index in kept or not isinstance(line, StepLine)
    ][-4 * STEPS_PER_POLL_MAX :]


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _whole(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 10**12:
        return None
    return value
