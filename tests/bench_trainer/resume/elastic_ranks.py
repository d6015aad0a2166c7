"""2, 1, 2 ranks: each step's samples are the same, and none is lost or done twice in an epoch.

The samples of a step are told apart by its loss: the model has nothing random, so only the last
digits depend on how the ranks add up; another sample would move it a hundred times as much.
"""

from __future__ import annotations

import signal
from collections import Counter

from tests.bench.results import Figure
from tests.bench_trainer.around import Around
from tests.bench_trainer.resume.exact_resume import CONFIG
from tests.training.loop.interrupted_run import InterruptedRun

SAME = 1e-4


def measure(around: Around) -> list[Figure]:
    """Drained at a third and at two thirds of four epochs and a half."""
    config = {
        **CONFIG,
        "model": "tests.training.models.plain_model:hidden_layer",
        "steps": 118,
        "step_delay_seconds": 0.02,
    }
    expected = InterruptedRun(around.new_folder("whole"), config, 2).finish().losses()
    run = InterruptedRun(around.new_folder("elastic"), config)
    for ranks, step in ((2, 39), (1, 78)):
        with run.attempt(ranks) as attempt:
            attempt.wait_for_step(step)
            attempt.process.send_signal(signal.SIGTERM)
            attempt.wait()
    run.finish(2)
    told = run.told_losses()
    others = [step for step, loss in told if abs(loss / expected[step] - 1) > SAME]
    twice = Counter(step for step, _ in told) != Counter(expected.keys())
    worst = max(abs(loss / expected[step] - 1) for step, loss in told)
    return [
        Figure("elastic", "2-1-2 ranks: steps with other samples", len(others), "", 0),
        Figure("elastic", "steps lost or done twice", float(twice), "", 0),
        Figure("elastic", "largest relative difference of a loss", worst, "", 1e-3),
    ]
