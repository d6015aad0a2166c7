"""Checkpoints under attack: a rank killed while saving, damaged files, another run's checkpoint."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.torchrun_gang import GangStarter, Machine, wait_until
from trainer.training import checkpoint
from trainer.training.checkpoint import CheckpointFolder, load_checkpoint, read_manifest
from trainer.training.errors import CheckpointCorruptError


def header(step: int) -> dict[str, Any]:
    return {"step": step, "total_steps": 9, "final": False, "world_size": 1, "fence": 1}


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    folder = CheckpointFolder(tmp_path / "checkpoints")
    folder.sweep()
    return folder.save(header(3), {"weights.pt": {"layer": torch.arange(1000.0)}})


def test_a_saved_checkpoint_comes_back_whole(saved: Path) -> None:
    manifest, contents = load_checkpoint(saved)
    assert manifest["step"] == 3
    assert torch.equal(contents["weights.pt"]["layer"], torch.arange(1000.0))


def test_files_are_hashed_in_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "CHUNK_BYTES", 1000)
    folder = CheckpointFolder(tmp_path)
    path = folder.save(header(1), {"weights.pt": torch.arange(1000.0)})
    (entry,) = read_manifest(path)["files"]
    assert entry["size"] == (path / "weights.pt").stat().st_size
    assert len(entry["chunks"]) == -(-entry["size"] // 1000)
    load_checkpoint(path)


@pytest.mark.parametrize("name", ["weights.pt", "manifest.json"])
@pytest.mark.parametrize("place", [0.0, 0.3, 0.6, 0.999])
def test_one_flipped_bit_is_found(saved: Path, name: str, place: float) -> None:
    data = bytearray((saved / name).read_bytes())
    data[int(place * len(data))] ^= 4
    (saved / name).write_bytes(data)
    with pytest.raises(CheckpointCorruptError, match=name):
        load_checkpoint(saved)


@pytest.mark.parametrize("name", ["weights.pt", "manifest.json"])
def test_a_short_or_missing_file_is_found(saved: Path, name: str) -> None:
    (saved / name).write_bytes((saved / name).read_bytes()[:-1])
    with pytest.raises(CheckpointCorruptError, match=name):
        load_checkpoint(saved)
    (saved / name).unlink()
    with pytest.raises(CheckpointCorruptError, match=name):
        load_checkpoint(saved)


def test_the_same_step_can_be_saved_again_and_older_attempts_are_kept(tmp_path: Path) -> None:
    earlier = CheckpointFolder(tmp_path)
    for step in (5, 6):
        earlier.save(header(step), {"weights.pt": step})
    later = CheckpointFolder(tmp_path)
    for step in (2, 5, 7):
        later.save(header(step), {"weights.pt": step * 10})
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [f"step-{step:012d}" for step in (5, 6, 7)]
    assert load_checkpoint(tmp_path / names[0])[1]["weights.pt"] == 50


def test_sweep_removes_half_written_folders_only(saved: Path) -> None:
    (saved.parent / "step-000000000004.tmp-1").mkdir()
    CheckpointFolder(saved.parent).sweep()
    assert list(saved.parent.iterdir()) == [saved]


def test_a_rank_killed_while_saving_leaves_only_complete_checkpoints(gangs: GangStarter) -> None:
    """ResNet-18's state is large enough for the kill to fall into the writing."""
    config = {
        "model": "resnet18",
        "data": "digits",
        "steps": 50,
        "batch_size": 4,
        "checkpoint_interval_steps": 1,
    }
    (machine,) = gangs.start("killed", config)
    folder = machine.folder / "checkpoints"
    wait_until(lambda: any(folder.glob("step-000000000002.tmp-*/weights.pt")))
    os.kill(machine.rank_pid(0), signal.SIGKILL)
    assert machine.wait() == 1
    assert [path.name for path in folder.glob("step-000000000002*") if "tmp" not in path.name] == []
    assert read_manifest(machine.checkpoint(1))["step"] == 1
    load_checkpoint(machine.checkpoint(1))
    assert not (machine.folder / "ended-rank0.json").exists()
    survivor = machine.ending(1)
    assert survivor["outcome"] == "failed"
    assert survivor["error"]["peer_communication"] is True


def test_a_damaged_checkpoint_is_refused_by_all_ranks(
    gangs: GangStarter, drained: list[Machine], tmp_path: Path
) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(drained[0].checkpoint(drained[0].ending(0)["step"]), damaged)
    weights = bytearray((damaged / "weights.pt").read_bytes())
    weights[len(weights) // 2] ^= 1
    (damaged / "weights.pt").write_bytes(weights)
    (machine,) = gangs.start(
        "damaged", json.loads((drained[0].folder / "config.json").read_text()), resume=damaged
    )
    assert machine.wait() == 1
    assert [machine.ending(rank)["exit_code"] for rank in (0, 1)] == [65, 65]
    (error,) = machine.lines("error")
    assert error["kind"] == "checkpoint_corrupt"
    assert "weights.pt is damaged in chunk 0" in error["message"]
    assert f"error: {error['message']}\n" in machine.log()
    assert "trainer/training/" not in machine.log()  # a sentence, not a traceback of ours
    assert machine.losses() == {}
