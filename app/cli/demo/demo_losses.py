"""The losses of two runs, step by step in full precision, and whether they are the same bits.

The losses are those that the trainer wrote on its machine: the control plane keeps points for
curves, not every step. Not here: running the jobs (`demo_proof`) or the lines (`demo_story`).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

_PROGRESS = "disk/attempts/*/progress/progress.jsonl"


@dataclass(frozen=True, slots=True)
class StepLoss:
    """The loss of one step as an attempt computed it; `loss` is the float64 of the trainer."""

    fence: int
    step: int
    loss: float


@dataclass(frozen=True, slots=True)
class StepLossPair:
    """One step in both runs."""

    fence: int
    step: int
    interrupted: float
    uninterrupted: float

    @property
    def is_equal(self) -> bool:
        """The same 64 bits: stricter than `==`, for which 0.0 and -0.0 are alike."""
        return _bits(self.interrupted) == _bits(self.uninterrupted)


@dataclass(frozen=True)
class LossComparison:
    """Every step that both runs have. `resumed_at`: the last step before the resume.

    missing: steps after the resume that one of the runs lacks; with one of them nothing is proved.
    """

    resumed_at: int
    total_steps: int
    pairs: tuple[StepLossPair, ...]
    missing: tuple[int, ...]

    @property
    def after_resume(self) -> tuple[StepLossPair, ...]:
        """The pairs from the resume on, by step."""
        return tuple(pair for pair in self.pairs if pair.step > self.resumed_at)

    @property
    def before_resume(self) -> tuple[StepLossPair, ...]:
        """The pairs up to the resume, by step."""
        return tuple(pair for pair in self.pairs if pair.step <= self.resumed_at)

    @property
    def different(self) -> tuple[StepLossPair, ...]:
        """The pairs that are not equal."""
        return tuple(pair for pair in self.pairs if not pair.is_equal)

    @property
    def holds(self) -> bool:
        """Every step from the resume to the end was compared, and no pair at all differs."""
        return bool(self.after_resume) and not self.missing and not self.different


def compare_losses(
    interrupted: Iterable[StepLoss],
    uninterrupted: Iterable[StepLoss],
    resumed_at: int,
    total_steps: int,
) -> LossComparison:
    """Pair the runs by step. A step that the interrupted run did twice is compared twice."""
    other = {one.step: one.loss for one in uninterrupted}
    pairs = [
        StepLossPair(one.fence, one.step, one.loss, other[one.step])
        for one in sorted(interrupted, key=lambda one: (one.step, one.fence))
        if one.step in other
    ]
    there = {pair.step for pair in pairs}
    missing = [step for step in range(resumed_at + 1, total_steps + 1) if step not in there]
    return LossComparison(resumed_at, total_steps, tuple(pairs), tuple(missing))


def read_losses(fence: int, lines: Iterable[bytes]) -> list[StepLoss]:
    """The losses in the lines of a progress file; a line that is torn or no step has none."""
    found = []
    for line in lines:
        try:
            written = json.loads(line)
        except ValueError:
            continue
        if isinstance(written, Mapping) and written.get("type") == "step":
            found.append(StepLoss(fence, int(written["step"]), float(written["loss"])))
    return found


class ProgressRecorder:
    """Keeps the progress files of a job's machines readable: a machine's end deletes its disk.

    Used as a context manager. `machines` is the folder of the local cloud's machines.
    """

    def __init__(self, machines: Path) -> None:
        self._machines = machines
        self._files: dict[tuple[str, int], IO[bytes]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.close()

    def look(self, machine_id: str | None) -> None:
        """Open what is new on a machine: one file per attempt, from before its first step."""
        if machine_id is None:
            return
        for path in (self._machines / machine_id).glob(_PROGRESS):
            key = (machine_id, int(path.parts[-3]))
            if key not in self._files:
                try:
                    self._files[key] = path.open("rb")
                except FileNotFoundError:
                    continue

    def losses(self) -> Sequence[StepLoss]:
        """Everything written so far, of all attempts."""
        found: list[StepLoss] = []
        for (_, fence), file in sorted(self._files.items(), key=lambda item: item[0]):
            file.seek(0)
            found += read_losses(fence, file)
        return found


def _bits(value: float) -> bytes:
    return struct.pack("<d", value)
