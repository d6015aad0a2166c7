"""Checkpoints under attack in real gangs: a rank killed while saving, a damaged or foreign one."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import pytest

from tests.training.gang.torchrun_gang import GangStarter, Machine, wait_until
from trainer.training.checkpoint import load_checkpoint, read_manifest
from trainer.training.checkpoint.folder import CheckpointFolder


@pytest.mark.full
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
    wait_until(lambda: CheckpointFolder(folder).complete() != [])
    before = {path.name for path in folder.glob("*.tmp-*")}
    wait_until(lambda: any(path.name not in before for path in folder.glob("*.tmp-*/weights*")))
    os.kill(machine.rank_pid(0), signal.SIGKILL)
    assert machine.wait() == 1
    complete = CheckpointFolder(folder).complete()
    for path in complete:
        load_checkpoint(path)
    assert not (machine.folder / "ended-rank0.json").exists()
    survivor = machine.ending(1)
    assert survivor["outcome"] == "failed"
    assert survivor["error"]["peer_communication"] is True
    assert "error: another rank went away: " in machine.log()
    assert "trainer/training/" not in machine.log()  # a sentence, not a traceback of ours


@pytest.mark.full
def test_a_damaged_checkpoint_is_refused_by_all_ranks(
    gangs: GangStarter, drained: list[Machine]
) -> None:
    damaged = damaged_copy(drained[0], gangs, "refused")
    (machine,) = gangs.start("damaged", config_of(drained[0]), resume=damaged)
    assert machine.wait() == 1
    assert [machine.ending(rank)["exit_code"] for rank in (0, 1)] == [65, 65]
    (error,) = machine.lines("error")
    assert error["kind"] == "checkpoint_corrupt"
    assert "weights.safetensors is damaged in chunk 0" in error["message"]
    assert f"error: {error['message']}\n" in machine.log()
    assert "trainer/training/" not in machine.log()  # a sentence, not a traceback of ours
    assert machine.losses() == {}


@pytest.mark.full
def test_from_a_folder_of_checkpoints_the_newest_good_one_is_taken(
    gangs: GangStarter, drained: list[Machine], uninterrupted: Machine
) -> None:
    newest = damaged_copy(drained[0], gangs, "fallback")
    folder = newest.parent
    before, last = (read_manifest(path)["step"] for path in sorted(folder.iterdir()))
    (machine,) = gangs.start("fallback", config_of(drained[0]), resume=folder)
    machine.wait_for_step(before + 10)
    machine.process.send_signal(signal.SIGTERM)
    machine.wait()
    losses = machine.losses()
    assert min(losses) == before + 1
    assert losses == {step: uninterrupted.losses()[step] for step in losses}
    assert "is damaged in chunk 0; trying the one before" in machine.log()
    names = sorted(path.name for path in folder.iterdir())
    assert names == [f"corrupt-step-{last:012d}", f"step-{before:012d}"]


@pytest.mark.full
def test_another_models_checkpoint_ends_with_one_line(
    gangs: GangStarter, drained: list[Machine]
) -> None:
    step = drained[0].ending(0)["step"]
    (machine,) = gangs.start(
        "foreign",
        {**config_of(drained[0]), "model": "mlp"},
        ranks_each=1,
        resume=drained[0].checkpoint(step),
    )
    machine.wait()
    (error,) = machine.lines("error")
    assert error["kind"] == "configuration"
    assert "model: 'mlp' cannot continue a checkpoint made with 'cnn'" in error["message"]


def damaged_copy(machine: Machine, gangs: GangStarter, name: str) -> Path:
    """A copy of all checkpoints of a drained machine, with one bit of the newest turned around."""
    folder = gangs.folder / f"{name}-checkpoints"
    shutil.copytree(machine.folder / "checkpoints", folder)
    newest = CheckpointFolder(folder).complete()[0]
    weights = bytearray((newest / "weights.safetensors").read_bytes())
    weights[len(weights) // 2] ^= 1
    (newest / "weights.safetensors").write_bytes(weights)
    return newest


def config_of(machine: Machine) -> dict[str, object]:
    config: dict[str, object] = json.loads((machine.folder / "config.json").read_text())
    return config
