"""The goodput ledger: one bucket for every second, whatever is entered and when."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.training.reporting.goodput import Bucket, Ledger, goodput
from trainer.training.reporting.progress import (
    ProgressLog,
    boot_seconds,
    process_started_at,
    reached_step,
)


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


MOVES = st.lists(
    st.tuples(
        st.sampled_from(list(Bucket)),
        st.floats(0, 1e4),
        st.sampled_from(["enter", "spend", "step", "saving step"]),
    ),
    max_size=60,
)


@given(MOVES)
def test_buckets_sum_to_all_the_time_there_was(moves: list[tuple[Bucket, float, str]]) -> None:
    clock = Clock()
    ledger = Ledger(started_at=90.0, clock=clock)
    for bucket, seconds, how in moves:
        if how == "enter":
            ledger.enter(bucket)
            clock.now += seconds
        elif how == "spend":
            with ledger.spending(bucket):
                clock.now += seconds
        else:
            clock.now += seconds
            ledger.step_took(seconds, saving=how == "saving step")
    counted = ledger.seconds()
    assert set(counted) == {bucket.value for bucket in Bucket}
    assert sum(counted.values()) == pytest.approx(clock.now - 90.0, rel=1e-9)
    assert min(counted.values()) >= -1e-6


def test_what_is_spent_inside_is_taken_from_what_is_around() -> None:
    clock = Clock()
    ledger = Ledger(started_at=100.0, clock=clock)
    clock.now += 3
    ledger.enter(Bucket.USEFUL_STEP)
    clock.now += 5
    with ledger.spending(Bucket.DATA_WAIT):
        clock.now += 2
    clock.now += 1
    assert ledger.bucket is Bucket.USEFUL_STEP
    counted = ledger.seconds()
    assert (counted["startup"], counted["useful_step"], counted["data_wait"]) == (3, 6, 2)
    assert goodput(counted) == 6 / 11


def test_slower_steps_while_saving_are_the_checkpoints_cost() -> None:
    clock = Clock()
    ledger = Ledger(started_at=100.0, clock=clock)
    ledger.enter(Bucket.USEFUL_STEP)
    for seconds, saving in [(1.0, True), (1.0, False), (1.0, False), (1.2, False), (1.5, True)]:
        clock.now += seconds
        ledger.step_took(seconds, saving)
    counted = ledger.seconds()
    assert counted["checkpoint_inflation"] == pytest.approx(0.5)
    assert counted["useful_step"] == pytest.approx(5.2)


def test_no_time_at_all_is_no_goodput() -> None:
    assert goodput(Ledger(100.0, Clock()).seconds()) == 0.0


def test_steps_of_an_earlier_attempt_are_recomputed_until_it_is_passed(tmp_path: Path) -> None:
    progress = ProgressLog(tmp_path / "progress.jsonl", reached_step=12)

    def bucket() -> Bucket:
        return progress.ledger.bucket

    progress.phase("train", 10)
    assert bucket() is Bucket.RECOMPUTED_STEP
    progress.write("step", step=11)
    assert bucket() is Bucket.RECOMPUTED_STEP
    progress.write("step", step=12)
    assert bucket() is Bucket.USEFUL_STEP
    progress.phase("checkpoint", 12)
    assert bucket() is Bucket.CHECKPOINT_STALL
    progress.phase("train", 12)
    assert bucket() is Bucket.USEFUL_STEP


def test_a_log_line_has_six_digits_and_the_file_all_of_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    progress = ProgressLog(tmp_path / "progress.jsonl")
    progress.write("eval", step=1_412, accuracy=0.9783950617283951, samples=1_797)
    assert capsys.readouterr().out == "eval step=1412 accuracy=0.978395 samples=1797\n"
    [line] = (tmp_path / "progress.jsonl").read_text().splitlines()
    assert json.loads(line)["accuracy"] == 0.9783950617283951


def test_the_ledger_begins_with_the_process(tmp_path: Path) -> None:
    progress = ProgressLog(tmp_path / "progress.jsonl")
    assert progress.ledger.started_at == process_started_at() < boot_seconds()
    progress.phase("boot", 0)
    progress.write_goodput(7, final=True)
    line = json.loads((tmp_path / "progress.jsonl").read_text().splitlines()[-1])
    assert (line["type"], line["step"], line["final"], line["goodput"]) == ("goodput", 7, True, 0.0)
    lived = line["at"] - process_started_at()
    assert line["total_seconds"] == pytest.approx(lived, rel=0.01)
    assert sum(line["buckets"].values()) == pytest.approx(lived, rel=0.01)


@pytest.mark.parametrize(
    ("told", "lines", "reached"),
    [
        (None, None, 0),
        ("31", None, 31),
        ("many", None, 0),
        (None, '{"type": "step", "step": 8}\n{"type": "eval", "step": 90}\n{"type": "st', 8),
        ("5", '[3]\n{"type": "step", "step": "x"}\n{"type": "step", "step": 6}\n', 6),
    ],
)
def test_how_far_an_earlier_attempt_came(
    tmp_path: Path, told: str | None, lines: str | None, reached: int
) -> None:
    path = tmp_path / "progress.jsonl"
    if lines is not None:
        path.write_text(lines)
    variables = {} if told is None else {"LOWTIDE_REACHED_STEP": told}
    assert reached_step(path, variables) == reached
