"""Reads the trainer's progress file as it grows; tolerant of whatever a user command writes.

Lives here: the tail and the parsing of one line. Not here: what a step means (`supervisor`).
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainer.protocol.agent_report import MachinePhase

READ_BYTES_MAX = 1 << 20
LINE_BYTES_MAX = 64 << 10
METRICS_MAX = 64
STEPS_PER_POLL_MAX = 50
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


ProgressLine = StepLine | PhaseLine


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
        self._offset = 0
        self._rest = b""

    def poll(self) -> list[ProgressLine]:
        """New whole lines, at most 1 MiB a call; of many steps a sample that keeps the last."""
        try:
            with self._path.open("rb") as file:
                size = file.seek(0, 2)
                if size < self._offset:  # the command started its file anew
                    self._offset, self._rest = 0, b""
                file.seek(self._offset)
                content = file.read(READ_BYTES_MAX)
        except OSError:
            return []
        self._offset += len(content)
        *lines, self._rest = (self._rest + content).split(b"\n")
        self._rest = self._rest[: LINE_BYTES_MAX + 1]
        parsed = (parse_line(line) for line in lines)
        return _sampled([line for line in parsed if line is not None])


def _sampled(lines: list[ProgressLine]) -> list[ProgressLine]:
    steps = [index for index, line in enumerate(lines) if isinstance(line, StepLine)]
    if len(steps) <= STEPS_PER_POLL_MAX:
        return lines
    stride = -(-len(steps) // STEPS_PER_POLL_MAX)
    kept = set(steps[::-1][::stride])
    return [
        line for index, line in enumerate(lines) if index in kept or isinstance(line, PhaseLine)
    ][-4 * STEPS_PER_POLL_MAX :]


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _whole(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 10**12:
        return None
    return value
