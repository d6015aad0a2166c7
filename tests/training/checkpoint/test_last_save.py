"""A notice while a checkpoint is on its way: one write where one fits, and nobody gives way."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.checkpoint.notices_in_flight import Notice, in_flight_run, notice_in_flight
from tests.training.loop.interrupted_run import InterruptedRun
from tests.training.loop.one_rank import STACK
from trainer.agent.folders.notice_file import write_deadline
from trainer.hooks.notice import NOTICE_VARIABLE, seconds_left
from trainer.training.checkpoint import (
    CheckpointEngine,
    CheckpointFolder,
    InFlight,
    load_checkpoint,
)
from trainer.training.config import parse_config
from trainer.training.gang.distributed import Gang
from trainer.training.gang.rank_environment import read_rank_environment
from trainer.training.reporting.progress import ProgressLog
from trainer.training.saving.saving import LastSave, Saving

MEGABYTES = 192
_TRIES = 6


def state(value: float) -> dict[str, Any]:
    return {"weights": {"large": torch.full((MEGABYTES << 18,), value)}, "training_state": {}}


def header(step: int) -> dict[str, Any]:
    return {"step": step, "total_steps": 9, "final": False, "world_size": 1, "fence": 1}


def flight(left: float, step: int = 5, whole: float = 10.0) -> InFlight:
    return InFlight(step, left, whole)


@pytest.mark.parametrize(
    ("left", "seconds_left", "finish", "then_last"),
    [
        (6.0, None, False, True),  # nobody knows: the newer one, at once
        (0.9, None, True, True),
        (6.0, 30.0, False, True),  # room for both, and yet one is enough
        (0.9, 30.0, True, True),
        (0.9, 10.5, False, True),  # both would not fit
        (6.0, 10.0, False, True),
        (6.0, 9.0, True, False),  # only the older one fits
        (6.0, 3.0, True, False),  # neither: the one that needs less
        (10.0, 3.0, False, True),
    ],
)
def test_what_is_on_its_way_is_finished_or_dropped_by_its_predicted_time(
    left: float, seconds_left: float | None, finish: bool, then_last: bool
) -> None:
    plan = LastSave(6, False, [flight(0.1), flight(left)], 8.0, seconds_left)
    assert plan.finish is finish
    assert (plan.fits_after(left) if finish else True) is then_last


def test_the_last_step_itself_is_never_written_twice() -> None:
    assert LastSave(5, False, [flight(9.0)], None, None).finish
    assert LastSave(6, True, [flight(9.0)], None, 1.0).finish
    nothing = LastSave(6, False, [], 8.0, 1.0)
    assert nothing.finish
    assert nothing.fits_after(5.0)


def test_training_s_thread_goes_on_where_the_one_that_gives_way_has_stopped(
    tmp_path: Path,
) -> None:
    commits: list[tuple[int, int]] = []

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "os.rename" and str(arguments[0]).startswith(str(tmp_path)):
            me = threading.get_native_id()
            commits.append((me, os.getpriority(os.PRIO_PROCESS, me)))

    sys.addaudithook(watch)
    engine = CheckpointEngine(CheckpointFolder(tmp_path))
    mine = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    engine.save(header(1), state(1.0), {})
    assert engine.busy
    engine.take_over(keep=True)
    (result,) = engine.take_results()
    assert (result.step, result.error) == (1, None)
    assert not engine.busy
    assert commits == [(threading.get_native_id(), mine)]
    # The same with nothing on its way, and then the thread is there for the next one.
    engine.take_over(keep=True)
    engine.save(header(2), state(2.0), {})
    engine.finish()
    assert [each.step for each in engine.take_results()] == [2]
    assert len(commits) == 2
    assert commits[1][0] != threading.get_native_id()


def test_a_dropped_save_leaves_nothing_and_the_next_one_is_whole(tmp_path: Path) -> None:
    engine = CheckpointEngine(CheckpointFolder(tmp_path))
    engine.save(header(1), state(1.0), {})
    found = engine.in_flight()
    assert found is not None
    assert found.step == 1
    assert 0.0 <= found.left_seconds <= found.whole_seconds
    engine.take_over(keep=False)
    assert list(tmp_path.iterdir()) == []
    assert engine.in_flight() is None
    engine.save(header(2), state(2.0), {}, hurried=True)
    (result,) = engine.take_results()
    assert (result.step, result.error) == (2, None)
    whole = engine.whole_seconds()
    assert whole is not None
    assert whole == pytest.approx(result.seconds)
    assert result.path is not None
    found_state = load_checkpoint(result.path)[1]["weights"]["large"]
    assert torch.equal(found_state, torch.full((MEGABYTES << 18,), 2.0))
    assert [path.name for path in tmp_path.iterdir()] == [f"step-{2:012d}"]


def test_a_save_on_its_way_gives_way_to_the_last_one_which_is_written_once(tmp_path: Path) -> None:
    """One that is nearly done is finished: on a busy machine that may be so a few times."""
    for number in range(_TRIES):
        folder = tmp_path / str(number)
        folder.mkdir()
        told = _saved_one_after_the_other(folder)
        assert told in ([2], [1, 2])
        saved = sorted(path.name for path in (folder / "saved").iterdir())
        assert saved == [f"step-{step:012d}" for step in told]
        if told == [2]:
            return
    pytest.fail(f"the save on its way was finished first, {_TRIES} times")


def _saved_one_after_the_other(folder: Path) -> list[int]:
    """The steps that were saved: the last one was asked for while the first was on its way."""
    told = folder / "progress.jsonl"
    progress = ProgressLog(told)
    progress.prints = False
    variables = {"LOWTIDE_CHECKPOINT_DIR": str(folder / "saved")}
    environment = read_rank_environment(variables, folder)
    gang = Gang(0, 1, torch.device("cpu"))
    saving = Saving(parse_config(STACK), environment, gang, progress)
    saving.take(header(1), state(1.0), {})
    assert saving.busy
    for _ in range(2):  # asked again, there is nothing left to do
        saving.take_last(header(2), state(2.0), {})
    lines = [json.loads(line) for line in told.read_text().splitlines()]
    return [line["step"] for line in lines if line["type"] == "checkpoint"]


def test_the_file_says_how_long_the_trainer_has(tmp_path: Path) -> None:
    path = tmp_path / "notice.json"
    variables = {NOTICE_VARIABLE: str(path)}
    assert seconds_left({}) is None
    assert seconds_left(variables) is None
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    write_deadline(path, now + 60.0)
    left = seconds_left(variables)
    assert left is not None
    assert 0.0 < left <= 60.0
    write_deadline(path, now - 5.0)
    assert seconds_left(variables) == 0.0
    for broken in ("", "[]", '{"deadline": "soon"}', '{"deadline": NaN}', '{"deadline": null}'):
        path.write_text(broken)
        assert seconds_left(variables) is None
    write_deadline(path, None)
    assert not path.exists()
    write_deadline(tmp_path / "gone" / "notice.json", 1.0)  # no folder: nobody is told


@pytest.mark.full
def test_a_notice_too_short_for_the_last_step_saves_the_one_on_its_way(tmp_path: Path) -> None:
    run = in_flight_run(tmp_path, megabytes=96)
    notice = tmp_path / "notice.json"
    notice.write_text(json.dumps({"deadline": 0.0}))
    with run.attempt(variables={NOTICE_VARIABLE: str(notice)}) as attempt:
        told = notice_in_flight(attempt)
    assert attempt.process.returncode == 75
    saved = [line["step"] for line in attempt.lines("checkpoint")]
    if told.was_in_flight:
        assert saved[-1] == told.flight_step
        assert f"there was no time to save step {told.last_step} too" in attempt.log()
    else:
        assert saved[-1] == told.last_step


@pytest.mark.full
def test_notices_with_a_save_in_flight_write_once_and_save_the_last_step(tmp_path: Path) -> None:
    run = in_flight_run(tmp_path, megabytes=96)
    notices = _noticed(run, 3)
    assert any(each.was_in_flight for each in notices)


def _noticed(run: InterruptedRun, count: int) -> list[Notice]:
    notices: list[Notice] = []
    reached = 0
    for _ in range(count):
        with run.attempt() as attempt:
            told = notice_in_flight(attempt)
        assert attempt.process.returncode == 75, attempt.log()[-2000:]
        assert min(attempt.losses()) == reached + 1
        reached = told.last_step
        saved = [line["step"] for line in attempt.lines("checkpoint")]
        assert saved[-1] == reached
        assert not told.written_twice
        notices.append(told)
    return notices
