"""SIGTERM while a checkpoint is being written: what was saved then, how often, and how soon."""

from __future__ import annotations

import itertools
import os
import signal
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.training.loop.interrupted_run import Attempt, InterruptedRun

# Of a save that is nearly done the rest is written: see ``last_save.py``. Twice as much here, for
# what is predicted is not what happens.
NEARLY_DONE = 0.2
WRITE_BYTES = 8 << 20


@dataclass(frozen=True)
class Notice:
    """One notice. Times in seconds of CLOCK_BOOTTIME.

    was_in_flight: a save of an earlier step was on its way when the drain began; written_twice: it
    was written to its end all the same, though much of it was left. step_seconds: the median of
    the attempt; bytes: of the last checkpoint.
    """

    asked_at: float
    drain_at: float
    durable_at: float
    last_step: int
    flight_step: int
    was_in_flight: bool
    written_twice: bool
    step_seconds: float
    bytes: int


def in_flight_run(folder: Path, megabytes: int, delay_seconds: float = 0.02) -> InterruptedRun:
    """A run that is nearly always saving."""
    config: dict[str, Any] = {
        "model": "tests.training.models.own_models:Slow",
        "model_options": {"megabytes": megabytes},
        "data": "digits",
        "steps": 1_000_000,
        "batch_size": 16,
        "optimizer": "sgd",
        "momentum": 0.0,
        "eval_every_epochs": 0,
        "checkpoint_interval_steps": 2,
        "step_delay_seconds": delay_seconds,
    }
    return InterruptedRun(folder / "run", config)


def notice_in_flight(attempt: Attempt, saves_before: int = 2) -> Notice:
    """SIGTERM at the beginning of a save, once some are complete; waits for the end."""
    attempt.wait_for_step(1)
    seen = 0
    while attempt.process.poll() is None:
        begun = [line for line in attempt.lines("phase") if line["phase"] == "checkpoint"]
        if len(begun) > max(seen, saves_before):
            break
        seen = max(seen, len(begun)) if len(begun) <= saves_before else seen
        time.sleep(0.002)
    asked_at = time.clock_gettime(time.CLOCK_BOOTTIME)
    attempt.process.send_signal(signal.SIGTERM)
    attempt.wait()
    phases = attempt.lines("phase")
    drain_at = max(line["at"] for line in phases if line["phase"] == "drain")
    saved = {line["step"]: line for line in attempt.lines("checkpoint")}
    last = attempt.last_step()
    begun = [line for line in phases if line["phase"] == "checkpoint" and line["at"] < drain_at]
    flight = begun[-1]
    done = saved.get(flight["step"])
    whole = max(line["seconds"] for line in saved.values())
    # The line comes when training's thread looks; `seconds` are the writer's own.
    ended_at = None if done is None else flight["at"] + done["seconds"]
    in_flight = flight["step"] < last and (ended_at is None or ended_at > drain_at)
    late = ended_at is not None and ended_at - drain_at > NEARLY_DONE * whole
    return Notice(
        asked_at=asked_at,
        drain_at=drain_at,
        durable_at=saved[last]["at"] if last in saved else float("nan"),
        last_step=last,
        flight_step=flight["step"],
        was_in_flight=in_flight,
        written_twice=in_flight and late and last in saved,
        step_seconds=_median_step(attempt),
        bytes=sum(path.stat().st_size for path in Path(saved[max(saved)]["path"]).iterdir()),
    )


def one_write(folder: Path, size: int) -> float:
    """Seconds of writing so many bytes to a new file in the folder, and of one fsync."""
    content = memoryview(bytearray(os.urandom(WRITE_BYTES)))
    path = folder / "one-write"
    started = time.perf_counter()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        for first in range(0, size, WRITE_BYTES):
            os.write(descriptor, content[: min(WRITE_BYTES, size - first)])
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    seconds = time.perf_counter() - started
    path.unlink()
    return seconds


def p95(values: list[float]) -> float:
    """The value that nineteen in twenty do not pass."""
    return sorted(values)[min(len(values) - 1, int(0.95 * len(values)))]


def _median_step(attempt: Attempt) -> float:
    at = [line["at"] for line in attempt.lines("step")]
    return float(statistics.median(then - now for now, then in itertools.pairwise(at)))
