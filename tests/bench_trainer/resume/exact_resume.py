"""Twenty random cuts of a run, each gone on from in a new process: is every later loss the same.

With dropout, augmentation, accumulation and EMA at once; readers 0, 2 and 4; one and two ranks.
Half of the cuts are notices, half are sudden deaths, after which steps are done a second time.
"""

from __future__ import annotations

import random
import signal
from typing import Any

from tests.bench.results import Figure
from tests.bench_trainer.around import Around
from tests.training.loop.interrupted_run import InterruptedRun

CONFIG: dict[str, Any] = {
    "model": "cnn",
    "data": "digits",
    "steps": 420,
    "batch_size": 48,
    "seed": 11,
    "accumulation": 3,
    "ema_decay": 0.99,
    "random_crop": True,
    "flip": True,
    "eval_every_epochs": 3,
    "checkpoint_interval_steps": 7,
}


def measure(around: Around) -> list[Figure]:
    """One uninterrupted run for each number of ranks, then one cut run for each combination."""
    figures = []
    cuts = around.count(20, 2)
    for ranks in (1, 2):
        whole = InterruptedRun(around.new_folder("whole"), CONFIG, ranks)
        expected = whole.finish().losses()
        for workers in (0, 2, 4):
            told = _cut_run(around, ranks, workers, cuts)
            equal = [pair for pair in told if expected.get(pair[0]) == pair[1]]
            complete = {step for step, _ in told} == set(expected)
            share = 100.0 * len(equal) / len(told) if complete else 0.0
            around.say(f"{ranks} ranks, {workers} workers: {share:.1f} % of {len(told)} losses")
            what = f"bit-equal losses, {ranks} rank{'s' if ranks > 1 else ''}, {workers} workers"
            detail = {"losses": len(told), "cuts": cuts}
            figures.append(Figure("resume", what, share, "%", 100, False, detail))
    return figures


def _cut_run(around: Around, ranks: int, workers: int, cuts: int) -> list[tuple[int, float]]:
    dice = random.Random(ranks * 100 + workers)
    slow = {**CONFIG, "workers": workers, "step_delay_seconds": 0.01}
    run = InterruptedRun(around.new_folder("cut"), slow, ranks)
    for step in sorted(dice.sample(range(1, 400), cuts)):
        with run.attempt() as attempt:
            if attempt.wait_for_step(step):
                attempt.process.send_signal(dice.choice([signal.SIGTERM, signal.SIGKILL]))
            attempt.wait()
    run.configure({**CONFIG, "workers": workers})
    run.finish()
    return run.told_losses()
