"""kill -9 at random moments, in the middle of saves too: is the newest committed one gone on from.

ResNet-18, whose state takes long enough to write, saved as often as it can be.
"""

from __future__ import annotations

import random
import time
from typing import Any

from tests.bench.results import Figure
from tests.bench_trainer.around import Around
from tests.training.gang.torchrun_gang import wait_until
from tests.training.loop.interrupted_run import Attempt, InterruptedRun
from trainer.training.checkpoint.folder import CheckpointFolder
from trainer.training.checkpoint.manifest import read_manifest

CONFIG: dict[str, Any] = {
    "model": "resnet18",
    "data": "digits",
    "steps": 1_000_000,
    "batch_size": 4,
    "optimizer": "sgd",
    "checkpoint_interval_steps": 1,
    "eval_every_epochs": 0,
}


def measure(around: Around) -> list[Figure]:
    """Each attempt must begin one step after the newest complete checkpoint."""
    dice = random.Random(5)
    run = InterruptedRun(around.new_folder("kills"), CONFIG)
    folder = CheckpointFolder(run.folder / "checkpoints")
    count = around.count(200, 8)
    wrong, in_a_save, committed = 0, 0, 0
    for number in range(count):
        with run.attempt() as attempt:
            _wait_a_while(attempt, dice)
            attempt.kill()
        told = attempt.losses()
        wrong += bool(told) and min(told) != committed + 1
        in_a_save += any(".tmp-" in path.name for path in folder.folder.glob("step-*"))
        complete = folder.complete()
        committed = read_manifest(complete[0])["step"] if complete else 0
        for path in complete[2:]:
            _remove(path)
        if number % 20 == 19:
            around.say(
                f"{number + 1} kills, {in_a_save} in a save, {wrong} wrong, step {committed}"
            )
    detail = {"in_a_save": in_a_save, "last_step": committed}
    return [Figure("kills", f"{count} kills, wrong resumes", wrong, "", 0, True, detail)]


def _wait_a_while(attempt: Attempt, dice: random.Random) -> None:
    """Mostly some saves after the first one, so that one is on its way; else any time before."""
    if dice.random() < 0.2:
        time.sleep(dice.uniform(0.1, 5.0))
        return
    wait_until(lambda: bool(attempt.lines("checkpoint")) or attempt.process.poll() is not None)
    seconds = [line["seconds"] for line in attempt.lines("checkpoint")]
    time.sleep(dice.uniform(0.0, 2.0) * max(seconds, default=0.0))


def _remove(path: Any) -> None:
    """What earlier attempts leave is not theirs to remove, and the disk is not endless."""
    for file in path.iterdir():
        file.unlink()
    path.rmdir()
