"""One announced interruption an hour, replayed: how much of the time is useful work.

An hour is too long to wait for. The run is real, with its process, its drain and its restart; the
hour between two interruptions is real for its first seconds, and the rest of it is added to the
useful time and, at the rate and cost that were measured, to the checkpoints'. So what is scaled is
only more of the same; start, restore, drain and shutdown count in full. The machine that comes next
is up before the notice ends (as `replace` has it), so that no boot is counted.
"""

from __future__ import annotations

import signal
import time
from typing import Any

from tests.bench.results import Figure
from tests.bench_trainer.around import Around
from tests.training.loop.interrupted_run import Attempt, InterruptedRun

HOUR_SECONDS = 3_600.0
CONFIG: dict[str, Any] = {
    "model": "resnet18",
    "data": "digits",
    "steps": 1_000_000,
    "batch_size": 16,
    "checkpoint_interval_seconds": "auto",
    "eval_every_epochs": 0,
}


def measure(around: Around) -> list[Figure]:
    """A few such hours; the first attempt, which starts fresh, is not counted."""
    run = InterruptedRun(around.new_folder("goodput"), CONFIG)
    hours = around.count(4, 2)
    goodputs: list[float] = []
    lost, open_ledger, reached = 0, 0.0, 0
    for number in range(hours + 1):
        with run.attempt() as attempt:
            attempt.wait_for_step(reached + 1)
            time.sleep(around.count(40, 15))
            attempt.process.send_signal(signal.SIGTERM)
            attempt.wait()
        told = attempt.losses()
        lost += min(told) - reached - 1
        reached = max(told)
        goodput, error = _of_an_hour(attempt)
        open_ledger = max(open_ledger, error)
        around.say(f"hour {number}: goodput {100 * goodput:.2f} %")
        if number > 0:
            goodputs.append(goodput)
    worst = 100 * min(goodputs)
    detail = {"hours": [round(100 * each, 2) for each in goodputs]}
    return [
        Figure("goodput", "one notice an hour, worst hour", worst, "%", 98, False, detail),
        Figure("goodput", "steps lost or done twice", abs(lost), "", 0),
        Figure("goodput", "ledger beside the clock", 100 * open_ledger, "%", 1),
    ]


def _of_an_hour(attempt: Attempt) -> tuple[float, float]:
    """(goodput of the attempt made an hour long, share by which its buckets miss its clock)."""
    line = attempt.lines("goodput")[-1]
    buckets: dict[str, float] = line["buckets"]
    total = sum(buckets.values())
    lines = attempt.lines("phase")
    clock = line["at"] - lines[0]["at"] + buckets["startup"]
    per_save = _seconds_per_save(attempt, buckets)
    saves = max(1, len(attempt.lines("checkpoint")) - 1)
    interval = (buckets["useful_step"] + buckets["checkpoint_stall"]) / saves
    added = max(0.0, HOUR_SECONDS - total)
    useful = buckets["useful_step"] + added * (1 - per_save / interval)
    return useful / (total + added), abs(total - line["total_seconds"]) / max(clock, total)


def _seconds_per_save(attempt: Attempt, buckets: dict[str, float]) -> float:
    """What one periodic checkpoint took from training: its stall, and slower steps meanwhile."""
    saves = attempt.lines("checkpoint")[:-1]
    if not saves:
        return 0.0
    stalls = sum(save["stall_seconds"] for save in saves)
    return float((stalls + buckets["checkpoint_inflation"]) / len(saves))
