"""Checkpoints that the ranks of several machines write together, each to its machine's disk."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.servers.free_port import free_port
from tests.training.checkpoint import compiled_ranks_program
from tests.training.checkpoint.gathered_shares import gather_shares
from tests.training.gang.torchrun_gang import (
    LIMIT_SECONDS,
    REPOSITORY,
    GangStarter,
    Machine,
    rank_variables,
)
from tests.training.loop.one_rank import train_here
from trainer.training.checkpoint import (
    CheckpointEngine,
    CheckpointFolder,
    Writer,
    load_checkpoint,
    read_manifest,
)
from trainer.training.training_errors import CheckpointCorruptError

# Weights and momentum of 45 MB each, dropout none, running statistics many.
LARGE: dict[str, Any] = {
    "model": "resnet18",
    "data": "digits",
    "steps": 9,
    "batch_size": 8,
    "optimizer": "sgd",
    "seed": 5,
    "eval_every_epochs": 0,
    "checkpoint_interval_steps": 3,
    "checkpoint_keep_every": 1,
    "random_crop": True,
    # One checkpoint at a time: where steps are faster than a save, the next one comes later.
    "step_delay_seconds": 0.5,
}


@pytest.fixture(scope="module")
def together(gangs: GangStarter) -> list[Machine]:
    """Two machines of one rank, each with a folder of its own, from start to finish."""
    machines = gangs.start("together", LARGE, machines=2, ranks_each=1, together=True)
    for machine in machines:
        assert machine.wait() == 0, machine.log()
    return machines


def _second_step(machines: list[Machine]) -> int:
    """The step of the second checkpoint: 6, or a later one where the disk was slow."""
    first, second, *_ = machines[0].saved_steps()
    assert (first, machines[-1].saved_steps()[1]) == (3, second)
    return second


@pytest.mark.full
def test_every_machine_writes_about_as_much(together: list[Machine]) -> None:
    sizes, second = [], _second_step(together)
    for number, machine in enumerate(together):
        folder = machine.checkpoint(second)
        files = {path.name: path.stat().st_size for path in folder.iterdir()}
        sizes.append(sum(files.values()))
        assert f"weights-0000{number + 1}-of-00002.safetensors" in files
        assert ("manifest.json" in files) == (number == 0)
    assert max(sizes) < 1.1 * min(sizes)


@pytest.mark.full
def test_going_on_is_exact_on_two_machines_and_one_and_two(
    tmp_path: Path, gangs: GangStarter, together: list[Machine]
) -> None:
    """Two ranks all the time: whatever wrote a checkpoint, the next losses are the same bits."""
    expected = together[0].losses()
    (alone,) = gangs.start("one-machine", LARGE, resume=gather_shares(together, 3, tmp_path / "a"))
    assert alone.wait() == 0, alone.log()
    assert alone.losses() == {step: expected[step] for step in range(4, 10)}
    second = min(step for step in alone.saved_steps() if step > 3)
    resume = alone.checkpoint(second)
    again = gangs.start(
        "two-again", LARGE, machines=2, ranks_each=1, resume=resume, together=True, fence=2
    )
    for machine in again:
        assert machine.wait() == 0, machine.log()
    assert again[0].losses() == {step: expected[step] for step in range(second + 1, 10)}
    _, one = load_checkpoint(gather_shares(together, 9, tmp_path / "b"))
    _, other = load_checkpoint(gather_shares(again, 9, tmp_path / "c"))
    # Running statistics too: they are the first rank's wherever a rank's part ends.
    for name, each in one["weights"].items():
        assert torch.equal(other["weights"][name], each), name


@pytest.mark.full
def test_a_missing_or_foreign_share_is_found(tmp_path: Path, together: list[Machine]) -> None:
    second = _second_step(together)
    whole = gather_shares(together, second, tmp_path / "whole")
    load_checkpoint(whole)
    with pytest.raises(CheckpointCorruptError, match="the share of machine 2 of 2 is missing"):
        load_checkpoint(together[0].checkpoint(second))
    name = "manifest-00002-of-00002.json"
    shutil.copy2(together[1].checkpoint(3) / name, whole / name)
    with pytest.raises(CheckpointCorruptError, match=f"{name} is a share of another checkpoint"):
        load_checkpoint(whole)
    shutil.copy2(together[1].checkpoint(second) / name, whole / name)
    (whole / "weights-00002-of-00002.safetensors").unlink()
    with pytest.raises(CheckpointCorruptError, match="weights-00002-of-00002"):
        load_checkpoint(whole)


@pytest.mark.full
def test_a_damaged_share_falls_back_to_the_checkpoint_before(
    tmp_path: Path, together: list[Machine], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, second = tmp_path / "saved", _second_step(together)
    gather_shares(together, 3, folder)
    damaged = gather_shares(together, second, folder) / "training_state-00002-of-00002.safetensors"
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    alone = train_here(tmp_path, LARGE, resume=folder, stop_after=4)
    assert min(alone.losses) == 4
    said = capsys.readouterr().err
    assert "training_state-00002-of-00002.safetensors is damaged in chunk" in said
    assert (folder / f"corrupt-step-{second:012d}").is_dir()


@pytest.mark.full
def test_what_each_rank_has_compiled_is_saved_as_the_first_one_has_it(tmp_path: Path) -> None:
    """As large as it happens to be on each: the ranks would cut the state in different places."""
    port = str(free_port())
    processes = []
    for rank in (0, 1):
        variables = {
            **rank_variables(tmp_path / str(rank), None, fence=1),
            "LOWTIDE_CHECKPOINT_SHARES": "1",
            "RANK": str(rank),
            "WORLD_SIZE": "2",
            "GROUP_RANK": str(rank),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
        }
        command = [sys.executable, "-m", "tests.training.checkpoint.compiled_ranks_program"]
        processes.append(subprocess.Popen(command, cwd=REPOSITORY, env=variables))
    assert [process.wait(LIMIT_SECONDS) for process in processes] == [0, 0]
    for rank in (0, 1):
        saved = tmp_path / str(rank) / "checkpoints" / "step-000000000004"
        shutil.copytree(saved, tmp_path / "whole", dirs_exist_ok=True)
    state = load_checkpoint(tmp_path / "whole")[1]["training_state"]
    expected = compiled_ranks_program.trees(0)["training_state"]
    assert all(torch.equal(state[name], each) for name, each in expected.items())


def test_files_that_may_be_missing_are_missed_of_every_share(tmp_path: Path) -> None:
    large = torch.rand(5000, 1000)
    state = {
        "weights": {"w": torch.rand(3)},
        "averages": {"a": large},
        "training_state": {"place": 4},
    }
    header = {"step": 4, "final": False, "fence": 1, "world_size": 4, "optional": ["averages"]}
    folders = [CheckpointFolder(tmp_path / f"machine-{part // 2}") for part in range(4)]
    engines = [CheckpointEngine(folders[part], Writer(part, 4, 1, machines=2)) for part in range(4)]
    for part, engine in enumerate(engines):
        engine.save(header, state, {f"random.{part}.x": torch.zeros(1)})
    paths = []
    for engine in engines:
        engine.finish()
        (result,) = engine.take_results()
        assert result.error is None
        paths += [result.path] if result.path is not None else []
    whole = tmp_path / "whole"
    for path in paths:
        shutil.copytree(path, whole, dirs_exist_ok=True)
    manifest, contents = load_checkpoint(whole)
    assert manifest["format"] == 3
    assert torch.equal(contents["averages"]["a"], large)
    assert [name for name in manifest["optional"] if not (whole / name).exists()] == []
    assert len(manifest["optional"]) == 4
    assert "metrics" not in json.loads((whole / "manifest-00002-of-00002.json").read_text())
    for name in manifest["optional"]:
        (whole / name).unlink()
    assert set(load_checkpoint(whole)[1]) == {"weights", "training_state"}
    assert read_manifest(whole)["digest"] == manifest["digest"]
