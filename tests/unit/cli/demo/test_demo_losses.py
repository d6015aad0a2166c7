"""The comparison behind `lowtide demo --prove`: it must be able to say no."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest

from app.cli.demo.demo_losses import ProgressRecorder, StepLoss, compare_losses, read_losses
from app.cli.demo.demo_story import proof

TOTAL, RESUMED_AT = 10, 4
LOSSES = [1 / step for step in range(1, TOTAL + 1)]


def run(first: int, last: int, fence: int = 1) -> list[StepLoss]:
    return [StepLoss(fence, step, LOSSES[step - 1]) for step in range(first, last + 1)]


def line(**fields: object) -> bytes:
    return json.dumps({"type": "step", "at": 1.5, **fields}).encode() + b"\n"


INTERRUPTED = [*run(1, RESUMED_AT), *run(RESUMED_AT + 1, TOTAL, fence=2)]


def test_equal_runs_hold_and_say_which_steps_were_compared():
    found = compare_losses(INTERRUPTED, run(1, TOTAL), RESUMED_AT, TOTAL)
    assert found.holds
    assert [pair.step for pair in found.after_resume] == [5, 6, 7, 8, 9, 10]
    told = "\n".join(proof(found))
    assert "10 of 10 steps" in told
    assert "from the resume on: 6 losses compared, steps 5 to 10: equal bit for bit ✓" in told
    assert "before it: 4 losses compared, steps 1 to 4: equal bit for bit ✓" in told


@pytest.mark.parametrize("step", [1, RESUMED_AT, RESUMED_AT + 1, TOTAL])
def test_one_loss_that_differs_in_its_last_bit_is_found(step: int):
    other = run(1, TOTAL)
    other[step - 1] = StepLoss(1, step, math.nextafter(LOSSES[step - 1], 2.0))
    found = compare_losses(INTERRUPTED, other, RESUMED_AT, TOTAL)
    assert not found.holds
    assert [pair.step for pair in found.different] == [step]
    told = "\n".join(proof(found))
    assert "1 differ ✗" in told
    assert repr(LOSSES[step - 1]) in told
    assert "≠" in told


def test_a_zero_of_another_sign_is_another_value():
    found = compare_losses([StepLoss(2, 1, 0.0)], [StepLoss(1, 1, -0.0)], 0, 1)
    assert not found.holds


def test_a_step_that_is_missing_after_the_resume_proves_nothing():
    for shorter in (INTERRUPTED[:-1], [*INTERRUPTED[:6], *INTERRUPTED[7:]]):
        found = compare_losses(shorter, run(1, TOTAL), RESUMED_AT, TOTAL)
        assert not found.different
        assert not found.holds
        assert "1 step after the resume not found ✗" in "\n".join(proof(found))
    assert not compare_losses(INTERRUPTED, run(1, TOTAL - 1), RESUMED_AT, TOTAL).holds
    assert not compare_losses([], run(1, TOTAL), RESUMED_AT, TOTAL).holds


def test_a_step_that_was_redone_is_compared_both_times():
    redone = [*run(1, 6), *run(RESUMED_AT + 1, TOTAL, fence=2)]
    assert compare_losses(redone, run(1, TOTAL), RESUMED_AT, TOTAL).holds
    redone[5] = StepLoss(1, 6, 0.123)
    found = compare_losses(redone, run(1, TOTAL), RESUMED_AT, TOTAL)
    assert [(pair.fence, pair.step) for pair in found.different] == [(1, 6)]


def test_losses_are_read_in_full_precision_from_whole_step_lines():
    loss = 0.1 + 0.2
    lines = [
        line(step=1, loss=loss, samples_per_second=3.0),
        json.dumps({"type": "phase", "phase": "train", "step": 1}).encode() + b"\n",
        json.dumps({"type": "eval", "step": 1, "loss": 9.0}).encode() + b"\n",
        b"[1]\n",
        line(step=2, loss=5e-324),
        line(step=3, loss=1.0)[:-9],
    ]
    assert read_losses(7, lines) == [StepLoss(7, 1, loss), StepLoss(7, 2, 5e-324)]


def test_a_machine_that_is_gone_leaves_its_losses_to_who_looked_in_time(tmp_path: Path):
    disk = tmp_path / "i-1" / "disk"
    folder = disk / "attempts" / "0002" / "progress"
    folder.mkdir(parents=True)
    with ProgressRecorder(tmp_path) as recorder:
        recorder.look(None)
        recorder.look("i-1")
        assert recorder.losses() == []
        with (folder / "progress.jsonl").open("ab", buffering=0) as file:
            file.write(line(step=5, loss=0.5))
            recorder.look("i-1")
            file.write(line(step=6, loss=0.25))
            shutil.rmtree(disk)
            file.write(line(step=7, loss=0.125))
        recorder.look("i-1")
        expected = [StepLoss(2, 5, 0.5), StepLoss(2, 6, 0.25), StepLoss(2, 7, 0.125)]
        assert recorder.losses() == expected
