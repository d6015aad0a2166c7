"""What may go from a full disk, in which order, and what always stays."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.disks.small_disk import small_disk
from trainer.agent.machine.make_room import (
    LOG_BYTES_MAX,
    Removable,
    free_space,
    look_at,
    make_room,
    replaced_checkpoints,
)


def saved(folder: Path, *steps: int) -> None:
    for step in steps:
        (folder / f"step-{step:012d}").mkdir(parents=True)
        (folder / f"step-{step:012d}" / "weights").write_bytes(bytes(1_000))


@pytest.mark.parametrize(
    ("steps", "committed", "go"),
    [
        ((), None, ()),
        ((10,), None, ()),
        ((10,), 10, ()),
        ((30, 10, 20), None, (10, 20)),
        ((10, 20, 30), 20, (10,)),
        ((10, 20, 30), 30, (10, 20)),
        ((10, 20), 90, (10,)),
    ],
)
def test_the_newest_and_the_newest_committed_one_stay(
    tmp_path: Path, steps: tuple[int, ...], committed: int | None, go: tuple[int, ...]
) -> None:
    saved(tmp_path, *steps)
    (tmp_path / "step-000000000005.tmp-1").mkdir()
    (tmp_path / "notes").mkdir()
    found = replaced_checkpoints(tmp_path, committed)
    assert [int(path.name[5:]) for path in found] == list(go)


def test_a_folder_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    assert replaced_checkpoints(tmp_path / "none", None) == []
    assert look_at([tmp_path / "none"]) == []


def test_checkpoints_go_before_progress_and_the_agents_own_log(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 8_192) as disk:
        checkpoints = disk.folder / "checkpoints"
        saved(checkpoints, 10, 20, 30)
        progress = disk.folder / "progress.jsonl"
        progress.write_bytes(b"x" * (3 << 20))
        log = os.open(disk.folder / "agent.log", os.O_RDWR | os.O_CREAT | os.O_APPEND)
        os.write(log, bytes(LOG_BYTES_MAX + 1))
        disk.fill()
        full = free_space(disk.folder)
        assert full.is_full
        removable = Removable(checkpoints, 20, progress, progress.stat().st_size)
        told = make_room(full.device, removable, log)
        assert "step 10" in next(told)
        assert sorted(path.name for path in checkpoints.iterdir()) == [
            "step-000000000020",
            "step-000000000030",
        ]
        before = disk.free_bytes
        assert "progress" in next(told)
        assert disk.free_bytes >= before + (2 << 20) - 4_096
        assert progress.stat().st_size == 3 << 20, "its writer notices nothing"
        assert progress.read_bytes()[-(1 << 20) :] == b"x" * (1 << 20)
        assert "the log of the agent" in next(told)
        assert os.fstat(log).st_size == 0
        assert list(told) == []
        assert not free_space(disk.folder).is_full
        os.close(log)


def test_another_disk_is_left_alone(tmp_path: Path) -> None:
    saved(tmp_path / "checkpoints", 10, 20, 30)
    with small_disk(tmp_path / "disk", 512) as disk:
        disk.fill()
        removable = Removable(tmp_path / "checkpoints", None, tmp_path / "progress", 0)
        assert list(make_room(free_space(disk.folder).device, removable, None)) == []
    assert len(list((tmp_path / "checkpoints").iterdir())) == 3
