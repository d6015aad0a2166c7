"""SIGTERM at random moments of a run: is everything saved, and how soon.

The run scores every other epoch, accumulates, warms up, and reads with 0, 2 or 4 workers; every
fifth attempt has two ranks. The moments are spread over start, restore, training and scoring; where
no step had been made since the last checkpoint there is nothing to wait for, and no time to tell.
"""

from __future__ import annotations

import random
import signal
import time
from typing import Any

from tests.bench.results import Figure
from tests.bench_trainer.around import Around
from tests.training.loop.interrupted_run import Attempt, InterruptedRun

CONFIG: dict[str, Any] = {
    "model": "cnn",
    "data": "digits",
    "steps": 1_000_000,
    "batch_size": 48,
    "accumulation": 3,
    "warmup_steps": 2_000,
    "ema_decay": 0.99,
    "eval_every_epochs": 2,
    "checkpoint_interval_seconds": 2.0,
}


def measure(around: Around) -> list[Figure]:
    """Each attempt goes on where the one before was drained."""
    dice = random.Random(3)
    run = InterruptedRun(around.new_folder("notices"), CONFIG)
    count = around.count(100, 10)
    seconds: list[float] = []
    lost, reached = 0, 0
    for number in range(count):
        run.configure({**CONFIG, "workers": dice.choice([0, 2, 4])})
        with run.attempt(2 if number % 5 == 4 else 1) as attempt:
            _wait_a_while(attempt, dice)
            asked_at = time.clock_gettime(time.CLOCK_BOOTTIME)
            attempt.process.send_signal(signal.SIGTERM)
            attempt.wait()
        told = attempt.losses()
        ending = attempt.ending()
        if ending is not None and told:
            seconds.append(_durable_at(attempt, ending) - asked_at)
        # A step is lost when it was told and is not in the checkpoint that is gone on from.
        first = min(told, default=reached + 1)
        saved = ending["step"] if ending is not None and told else reached
        lost += (first != reached + 1) + (bool(told) and saved != max(told))
        reached = max(reached, max(told, default=0))
        if number % 10 == 9:
            around.say(f"{number + 1} notices, step {reached}, {lost} not saved")
    seconds.sort()
    p99 = seconds[min(len(seconds) - 1, int(0.99 * len(seconds)))]
    detail = {"median_seconds": round(seconds[len(seconds) // 2], 3), "timed": len(seconds)}
    return [
        Figure("notice", f"{count} notices, not saved", lost, "", 0),
        Figure("notice", "notice to durable, p99", p99, "s", 3.0, True, detail),
    ]


def _wait_a_while(attempt: Attempt, dice: random.Random) -> None:
    """One in five in the first seconds, the others some steps after the first one."""
    if dice.random() < 0.2:
        time.sleep(dice.uniform(0.1, 2.5))
        return
    attempt.wait_for_step(1)
    time.sleep(dice.uniform(0.0, 1.0))


def _durable_at(attempt: Attempt, ending: dict[str, Any]) -> float:
    """When the last step was safe, in seconds of CLOCK_BOOTTIME."""
    saved = [line["at"] for line in attempt.lines("checkpoint") if line["step"] == ending["step"]]
    return float(saved[-1] if saved else ending["at_seconds"])
