"""Trainers whose disk is full: lines and checkpoints are lost, and neither the run nor its end."""

from __future__ import annotations

import errno
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.disks.full_flushes import FullFlush
from tests.support.disks.small_disk import SmallDisk, small_disk
from tests.training.loop.interrupted_run import InterruptedRun
from trainer.hooks import Hooks, SaveFailed
from trainer.training.checkpoint import CheckpointEngine, CheckpointFolder, Saved, load_checkpoint
from trainer.training.gang.ending import Ending, write_ending, write_started
from trainer.training.gang.rank_environment import RankEnvironment, read_rank_environment
from trainer.training.reporting.progress import ProgressLog


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk", 256) as mounted:
        yield mounted


def whole_lines(path: Path) -> list[dict[str, Any]]:
    found = []
    for line in path.read_bytes().splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def environment_in(folder: Path) -> RankEnvironment:
    return read_rank_environment({"LOWTIDE_END_FILE_DIR": str(folder)}, folder)


def test_lines_that_find_no_room_are_lost_and_the_later_ones_are_whole(disk: SmallDisk) -> None:
    path = disk.folder / "progress.jsonl"
    # Lines hold times, of which some have fewer digits: one in sixty disks ends with a line's end.
    for _ in range(5):
        path.unlink(missing_ok=True)
        progress = ProgressLog(path)
        progress.prints = False
        for step in range(1, 30_000):
            progress.write("eval", step=step)  # the last one that fits is torn
        assert path.stat().st_size > 200 << 10
        torn = not path.read_bytes().endswith(b"\n")
        if torn:
            break
    assert torn, "the disk was to cut a line"
    (disk.folder / "room").unlink(missing_ok=True)
    written = len(whole_lines(path))
    grow(disk)
    progress.write("eval", step=30_000)
    lines = whole_lines(path)
    assert lines[-1]["step"] == 30_000
    assert len(lines) == written + 1


def grow(disk: SmallDisk) -> None:
    options = ["mount", "-o", "remount,size=512k", str(disk.folder)]
    subprocess.run(options, check=True, timeout=60)


@pytest.mark.parametrize("message", ["short", "x" * 1_000])
def test_the_end_is_written_on_a_disk_that_is_full(disk: SmallDisk, message: str) -> None:
    environment = environment_in(disk.folder)
    write_started(environment)
    disk.fill()
    write_ending(environment, Ending("finished", 7, 0, reason=message))
    marker = json.loads((disk.folder / "ended-rank0.json").read_text())
    assert (marker["outcome"], marker["step"], marker["reason"]) == ("finished", 7, message)
    assert not list(disk.folder.glob("*.tmp-*"))


def test_an_end_with_room_leaves_nothing_else_behind(tmp_path: Path) -> None:
    environment = environment_in(tmp_path)
    write_started(environment)
    write_ending(environment, Ending("drained", 7, 75))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "ended-rank0.json",
        "started-rank0.json",
    ]


def test_a_script_learns_of_a_save_without_room_and_may_go_on(
    disk: SmallDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    progress = disk.folder / "progress.jsonl"
    monkeypatch.setenv("LOWTIDE_CHECKPOINT_DIR", str(disk.folder / "checkpoints"))
    monkeypatch.setenv("LOWTIDE_PROGRESS_FILE", str(progress))
    hooks = Hooks()
    hooks.progress(1)
    kept = hooks.save(1, lambda folder: (folder / "w").write_bytes(bytes(20_000)))
    with pytest.raises(SaveFailed, match=r"rank 0: OSError.*No space left") as refused:
        hooks.save(2, lambda folder: (folder / "w").write_bytes(bytes(1 << 20)))
    assert getattr(refused.value.__cause__, "errno", None) == errno.ENOSPC
    assert [path.name for path in kept.parent.iterdir()] == [kept.name], "its room is given back"
    assert whole_lines(progress)[-1] == {"type": "checkpoint_failed", "step": 2, "disk_full": True}
    disk.fill()
    for step in range(3, 303):  # a line is no reason to end a run
        hooks.progress(step)
    assert not progress.read_bytes().endswith(b"\n"), "the disk was to cut a line"
    disk.empty()
    hooks.progress(303)
    assert whole_lines(progress)[-1] == {"type": "step", "step": 303}
    hooks.save(4, lambda folder: (folder / "w").write_bytes(bytes(20_000)))
    assert hooks.resume() == kept.parent / "step-000000000004"


@pytest.mark.parametrize("step", [1, 2])
def test_a_checkpoint_is_whole_or_not_there_at_whichever_flush_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    engine = CheckpointEngine(CheckpointFolder(tmp_path))

    def saved(step: int, value: float) -> Saved:
        header = {"step": step, "total_steps": 9, "final": False, "world_size": 1, "fence": 1}
        trees = {"weights": {"w": torch.full((1_000,), value)}, "training_state": {}}
        engine.save(header, trees, {}, hurried=True)
        (result,) = engine.take_results()
        return result

    kept = saved(1, 1.0).path
    assert kept is not None
    for at in range(1, 30):
        with monkeypatch.context() as patch:
            flush = FullFlush(patch, at)
            result = saved(step, 2.0)
        if not flush.was_met:
            assert result.error is None
            return
        assert result.disk_full
        assert "No space left" in (result.error or "")
        assert list(tmp_path.iterdir()) == [kept], at
        assert float(load_checkpoint(kept)[1]["weights"]["w"][0]) == 1.0
    raise AssertionError("it flushes for ever")


def test_a_scripts_checkpoint_is_whole_or_not_there_at_whichever_flush_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOWTIDE_CHECKPOINT_DIR", str(tmp_path))
    hooks = Hooks()
    kept = hooks.save(1, lambda folder: (folder / "w").write_bytes(b"1"))
    for at in range(1, 30):
        with monkeypatch.context() as patch:
            flush = FullFlush(patch, at)
            if hooks.try_save(2, lambda folder: (folder / "w").write_bytes(b"2")):
                assert not flush.was_met
                return
        assert list(tmp_path.iterdir()) == [kept], at
    raise AssertionError("it flushes for ever")


@pytest.mark.full
def test_a_run_whose_every_save_finds_no_room_ends_with_its_reason(tmp_path: Path) -> None:
    config = {
        "model": "cnn",
        "data": "digits",
        "steps": 40,
        "batch_size": 48,
        "checkpoint_interval_steps": 10,
        "eval_every_epochs": 0,
    }
    run = InterruptedRun(tmp_path / "run", config)
    with small_disk(tmp_path / "run" / "checkpoints", 16) as disk:
        disk.fill()
        with run.attempt() as attempt:
            attempt.wait()
        ending = attempt.ending()
        assert ending is not None, attempt.log()
        assert ending["error"]["kind"] == "checkpoint_not_saved"
        assert "No space left" in ending["error"]["message"]
        failed = attempt.lines("checkpoint_failed")
        assert failed
        assert all(line["disk_full"] for line in failed)
        assert attempt.last_step() == 40
