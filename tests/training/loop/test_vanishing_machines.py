"""Machines that vanish: notices and kills at random moments, other rank counts, a full disk.

Few and seeded here; ``make bench-trainer`` does the same hundreds of times.
"""

from __future__ import annotations

import random
import resource
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.training.gang.torchrun_gang import LIMIT_SECONDS, wait_until
from tests.training.loop.interrupted_run import InterruptedRun
from trainer.training.checkpoint import read_manifest
from trainer.training.checkpoint.folder import CheckpointFolder

EVERYTHING: dict[str, Any] = {
    "model": "cnn",  # with dropout
    "data": "digits",
    "steps": 160,
    "batch_size": 48,
    "seed": 11,
    "accumulation": 3,
    "ema_decay": 0.99,
    "random_crop": True,
    "flip": True,
    "eval_every_epochs": 2,
    "checkpoint_interval_steps": 15,
}


@pytest.mark.full
def test_two_ranks_lose_nothing_to_cuts_and_kills(tmp_path: Path) -> None:
    """With dropout, augmentation, accumulation and EMA; the whole run reads without workers."""
    expected = InterruptedRun(tmp_path / "whole", EVERYTHING, ranks=2).finish().losses()
    dice = random.Random(20)
    slow = {**EVERYTHING, "workers": 2, "step_delay_seconds": 0.01}
    cut = InterruptedRun(tmp_path / "cut", slow, ranks=2)
    for step, sent in zip(
        sorted(dice.sample(range(1, 150), 2)), (signal.SIGTERM, signal.SIGKILL), strict=True
    ):
        with cut.attempt() as attempt:
            if attempt.wait_for_step(step):
                attempt.process.send_signal(sent)
            attempt.process.wait(LIMIT_SECONDS)
    cut.configure({**EVERYTHING, "workers": 2})
    cut.finish()
    told = cut.told_losses()
    assert {step for step, _ in told} == set(expected)
    assert [pair for pair in told if pair[1] != expected[pair[0]]] == []


@pytest.mark.full
def test_the_number_of_ranks_may_change_between_attempts(tmp_path: Path) -> None:
    """2, 1, 2 ranks: each step's loss is that of the same samples, augmented in the same way.

    The loss of a model without dropout names its samples: only the order in which it is added up
    differs with the ranks, so only its last digits.
    """
    config = {
        **EVERYTHING,
        "model": "tests.training.models.plain_model:hidden_layer",
        "steps": 60,
        "eval_every_epochs": 0,
        "checkpoint_interval_steps": 7,
        "step_delay_seconds": 0.02,
    }
    expected = InterruptedRun(tmp_path / "whole", config, ranks=2).finish().losses()
    run = InterruptedRun(tmp_path / "elastic", config)
    for ranks, step in ((2, 17), (1, 38)):
        with run.attempt(ranks) as attempt:
            assert attempt.wait_for_step(step), attempt.log()[-2000:]
            attempt.process.send_signal(signal.SIGTERM)
            attempt.wait()
    run.finish(ranks=2)
    told = run.told_losses()
    assert Counter(step for step, _ in told) == Counter(expected.keys())
    assert [step for step, loss in told if abs(loss / expected[step] - 1) > 1e-4] == []


@pytest.mark.full  # test_cut_runs.py and test_training_runs.py drain and resume in every run
@pytest.mark.parametrize("notices", [3, 6])
def test_notices_at_random_moments_lose_no_step(tmp_path: Path, notices: int) -> None:
    """While starting, restoring, training, scoring, saving; with workers that read the data."""
    dice = random.Random(4)
    config = {**EVERYTHING, "steps": 4_000, "workers": 2, "checkpoint_interval_steps": 7}
    run = InterruptedRun(tmp_path, config)
    reached = 0
    for number in range(notices):
        with run.attempt() as attempt:
            if number % 3 == 2:
                time.sleep(dice.uniform(0.0, 1.0))  # in the imports, or before any handler stands
            else:
                attempt.wait_for_step(reached + dice.randrange(1, 40))
                time.sleep(dice.uniform(0.0, 0.05))
            attempt.process.send_signal(signal.SIGTERM)
            code = attempt.wait()
        reached = max(reached, attempt.last_step())
        ending = attempt.ending()
        if ending is None:  # before the handlers: nothing was begun
            assert (code, attempt.losses()) == (-signal.SIGTERM, {})
            continue
        assert (ending["outcome"], code) == ("drained", 75)
        assert ending["step"] in (reached, 0)
        if attempt.losses():
            newest = CheckpointFolder(tmp_path / "checkpoints").complete()[0]
            assert newest.name == f"step-{reached:012d}"
    assert reached > 0
    counted = Counter(step for step, _ in run.told_losses())
    assert counted == dict.fromkeys(range(1, reached + 1), 1)


@pytest.mark.parametrize("deaths", [2, 6])
@pytest.mark.full
def test_sudden_deaths_go_on_from_the_newest_committed_checkpoint(
    tmp_path: Path, deaths: int
) -> None:
    dice = random.Random(8)
    config = {**EVERYTHING, "steps": 4_000, "checkpoint_interval_steps": 2, "eval_every_epochs": 0}
    run = InterruptedRun(tmp_path, {**config, "step_delay_seconds": 0.02})
    folder = CheckpointFolder(tmp_path / "checkpoints")
    committed = 0
    for _ in range(deaths):
        with run.attempt() as attempt:
            attempt.wait_for_step(committed + dice.randrange(1, 20))
            time.sleep(dice.uniform(0.0, 0.02))
            attempt.kill()
        losses = attempt.losses()
        assert min(losses) == committed + 1
        newest = folder.complete()
        committed = read_manifest(newest[0])["step"] if newest else 0
    assert committed > 0
    told = dict[int, float]()
    for step, loss in run.told_losses():
        assert told.setdefault(step, loss) == loss  # done again, to the same bit


@pytest.mark.full
def test_a_full_disk_costs_a_checkpoint_not_the_run(tmp_path: Path) -> None:
    """A limit on the size of files stands for the disk: the kernel answers EFBIG in its place."""
    config = {
        **EVERYTHING,
        "model": "resnet18",
        "steps": 14,
        "batch_size": 6,
        "accumulation": 1,
        "checkpoint_interval_steps": 5,
        "eval_every_epochs": 0,
    }
    run = InterruptedRun(tmp_path, config)
    with run.attempt() as attempt:
        limit_file_size(attempt.process.pid, 700 << 10)
        attempt.wait()
    failed = attempt.lines("checkpoint_failed")
    first = failed[0]
    assert first["message"].startswith(
        f"the checkpoint of step {first['step']} could not be written: File too large; of this"
    )
    ending = attempt.ending()
    assert ending is not None
    assert ending["outcome"] == "failed"
    assert ending["error"]["kind"] == "checkpoint_not_saved"
    # It went on after the first one.
    assert first["step"] < failed[-1]["step"] == max(attempt.losses()) == 14
    assert "Traceback" not in attempt.log()
    assert list((tmp_path / "checkpoints").iterdir()) == []


@pytest.mark.full
def test_nothing_to_save_does_not_wait_for_the_others(tmp_path: Path) -> None:
    """Deep in a call of torch: rank 1 of 2 never comes, and the notice ends rank 0 all the same."""
    run = InterruptedRun(tmp_path, EVERYTHING)
    lonely = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    with run.attempt(variables=lonely) as attempt:
        wait_until(lambda: attempt.lines("phase") != [])
        time.sleep(2.0)
        asked_at = time.monotonic()
        attempt.process.send_signal(signal.SIGTERM)
        assert attempt.wait() == 75
    assert time.monotonic() - asked_at < 30
    ending = attempt.ending()
    assert ending is not None
    assert (ending["outcome"], ending["step"]) == ("drained", 0)


def limit_file_size(pid: int, size_bytes: int) -> None:
    """From now on the process cannot write beyond so many bytes of a file; SIGXFSZ is ignored by
    Python, so it sees an error. Source: prlimit(2).
    """
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size_bytes, size_bytes))
