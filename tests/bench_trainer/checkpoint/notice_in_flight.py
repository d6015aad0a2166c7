"""SIGTERM while a checkpoint is being written: how soon the last step is durable.

What is on its way is finished by nobody who gives way to training, and dropped when the last step
can be written instead. Beside each notice the same bytes are written once, with one fsync, when
nothing else of the row is running: that and a step is what a notice has to take.
"""

from __future__ import annotations

import statistics

from tests.bench.results import Figure
from tests.bench_trainer.around import Around
from tests.training.checkpoint.notices_in_flight import (
    in_flight_run,
    notice_in_flight,
    one_write,
    p95,
)

MEGABYTES = 144


def measure(around: Around) -> list[Figure]:
    """Each attempt goes on where the one before was drained."""
    run = in_flight_run(around.new_folder("in-flight"), MEGABYTES)
    count = around.count(60, 10)
    waits: list[float] = []
    single: list[float] = []
    reached = lost = twice = hits = 0
    for number in range(count):
        with run.attempt() as attempt:
            told = notice_in_flight(attempt)
        first = min(attempt.losses())
        saved = [line["step"] for line in attempt.lines("checkpoint")]
        lost += (first != reached + 1) + (saved[-1] != told.last_step)
        reached = told.last_step
        twice += told.written_twice
        hits += told.was_in_flight
        waits.append(told.durable_at - told.asked_at)
        single.append(told.step_seconds + one_write(run.folder, told.bytes))
        if number % 10 == 9:
            around.say(f"{number + 1} notices, {hits} with a save in flight, {lost} not saved")
    detail = {
        "notices": count,
        "save_in_flight": hits,
        "notice_median_seconds": round(statistics.median(waits), 3),
        "notice_p95_seconds": round(p95(waits), 3),
        "write_and_step_median_seconds": round(statistics.median(single), 3),
        "write_and_step_p95_seconds": round(p95(single), 3),
        "median_ratio": round(statistics.median(waits) / statistics.median(single), 2),
    }
    ratio = p95(waits) / p95(single)
    return [
        Figure("in-flight", f"{count} notices with a save in flight, not saved", lost, "", 0),
        Figure("in-flight", "two whole writes where one fits", twice, "", 0),
        Figure(
            "in-flight", "p95 over p95 of one write and one step", ratio, "x", 1.3, True, detail
        ),
    ]
