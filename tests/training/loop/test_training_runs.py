"""Whole runs under torchrun: accuracy, what a finished and a drained run leave, exact resume."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.servers.free_port import free_port
from tests.training.gang.torchrun_gang import (
    LIMIT_SECONDS,
    REPOSITORY,
    GangStarter,
    Machine,
    rank_variables,
)
from tests.training.loop.one_rank import STACK
from trainer.training.checkpoint import load_checkpoint, read_manifest
from trainer.training.config import load_config
from trainer.training.drain import StopRequest
from trainer.training.gang.rank_environment import read_rank_environment
from trainer.training.rank_loop import run_rank
from trainer.training.started_rank import start_rank


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """Two ranks from start to finish, the first in this process, which has PyTorch already."""
    folder = tmp_path_factory.mktemp("short")
    path = folder / "config.json"
    path.write_text(json.dumps({**STACK, "checkpoint_interval_steps": 5}))
    gang = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "RANK": "0", "LOCAL_RANK": "0"}
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    with pytest.MonkeyPatch.context() as patched, (folder / "output.log").open("wb") as log:
        for name, value in {**rank_variables(folder, None, fence=1), **gang, **meeting}.items():
            patched.setenv(name, value)
        command = [sys.executable, "-m", "trainer.training.train", "--config", str(path)]
        second = subprocess.Popen(
            command,
            cwd=REPOSITORY,
            env={**os.environ, "RANK": "1", "LOCAL_RANK": "1"},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        machine = Machine(folder, second)
        try:
            environment = read_rank_environment(os.environ)
            rank = start_rank(path, environment, StopRequest(), fresh=True)
            assert run_rank(rank, load_config(path)).exit_code == 0
            assert machine.wait() == 0, machine.log()
        finally:
            second.kill()
            second.wait(LIMIT_SECONDS)
    return machine


@pytest.fixture(params=["short", pytest.param("uninterrupted", marks=pytest.mark.full)])
def finished(request: pytest.FixtureRequest) -> tuple[Machine, int, int]:
    """Two ranks that came to their end; the steps, and the samples of each."""
    machine: Machine = request.getfixturevalue(request.param)
    config = json.loads((machine.folder / "config.json").read_text())
    return machine, config["steps"], config["batch_size"]


# That anything is learned takes hundreds of steps.
@pytest.mark.full
def test_digits_are_learned(uninterrupted: Machine) -> None:
    (end,) = uninterrupted.lines("end")
    assert end["outcome"] == "finished"
    assert end["test_accuracy"] > 0.95
    assert len(uninterrupted.lines("step")) == 400


def test_finished_run_leaves_a_final_checkpoint_and_markers(
    finished: tuple[Machine, int, int],
) -> None:
    machine, steps, _ = finished
    assert sorted(machine.losses()) == list(range(1, steps + 1))
    (end,) = machine.lines("end")
    manifest, contents = load_checkpoint(machine.checkpoint(steps))
    assert manifest["final"] is True
    assert manifest["total_steps"] == steps
    assert manifest["metrics"]["test_accuracy"] == end["test_accuracy"]
    assert set(contents) == {"weights", "training_state"}
    for rank in (0, 1):
        ending = machine.ending(rank)
        assert (ending["outcome"], ending["step"], ending["exit_code"]) == ("finished", steps, 0)


def test_progress_tells_the_phases_on_one_clock(finished: tuple[Machine, int, int]) -> None:
    machine, steps, batch_size = finished
    phases = [line["phase"] for line in machine.lines("phase")]
    assert phases[:2] == ["boot", "train"]
    assert {"eval", "checkpoint"} <= set(phases)
    text = (machine.folder / "progress.jsonl").read_text()
    instants = [json.loads(line)["at"] for line in text.splitlines()]
    assert instants == sorted(instants)
    step = machine.lines("step")[-1]
    assert (step["samples"], step["phase"]) == (steps * batch_size, "train")
    assert step["total_steps"] == steps


# In every run: test_goodput_ledger.py and test_observing.py.
@pytest.mark.full
def test_the_run_says_what_its_time_went_into(uninterrupted: Machine) -> None:
    said = uninterrupted.lines("verdict")[-1]
    assert (said["step"], said["ranks"]) == (400, 2)
    assert 0 < said["share_all_reduce"] < 1  # the wait for each other
    ledger = uninterrupted.lines("goodput")[-1]
    assert (ledger["step"], ledger["final"]) == (400, True)
    assert ledger["buckets"]["rendezvous"] > 0
    assert ledger["buckets"]["eval"] > 0
    assert sum(ledger["buckets"].values()) == pytest.approx(ledger["total_seconds"])


def test_one_machines_notice_drains_all_ranks_at_one_step(drained: list[Machine]) -> None:
    endings = [machine.ending(rank) for rank, machine in enumerate(drained)]
    assert [ending["outcome"] for ending in endings] == ["drained", "drained"]
    assert [ending["exit_code"] for ending in endings] == [75, 75]
    assert endings[0]["step"] == endings[1]["step"] < 400
    manifest = read_manifest(drained[0].checkpoint(endings[0]["step"]))
    assert (manifest["step"], manifest["final"]) == (endings[0]["step"], False)
    assert not (drained[1].folder / "checkpoints").exists()
    # Each step's pause is counted as such, and not as training.
    buckets = drained[0].lines("goodput")[-1]["buckets"]
    assert buckets["pause"] >= 0.02 * endings[0]["step"]


def test_only_the_newest_two_checkpoints_stay(drained: list[Machine]) -> None:
    last = drained[0].ending(0)["step"]
    saved = [line["step"] for line in drained[0].lines("checkpoint")]
    # A due one waits for the one before to be written, so only the first step is certain.
    assert saved[0] == 25
    assert all(later - step >= 25 for step, later in itertools.pairwise(saved[:-1]))
    assert saved[-1] == last
    names = sorted(path.name for path in (drained[0].folder / "checkpoints").iterdir())
    assert names == [f"step-{step:012d}" for step in saved[-2:]]


def test_sigusr1_dumps_stacks_and_training_goes_on(drained: list[Machine]) -> None:
    assert "most recent call first" in drained[1].log()
    assert "most recent call first" not in drained[0].log()


# Starts a gang of its own; test_one_machines_notice_drains_all_ranks_at_one_step stays.
@pytest.mark.full
def test_signal_to_torchrun_and_ranks_alike_drains_once(drained_again: Machine) -> None:
    endings = [drained_again.ending(rank) for rank in (0, 1)]
    assert [ending["outcome"] for ending in endings] == ["drained", "drained"]
    assert endings[0]["step"] == endings[1]["step"]
    assert drained_again.lines("checkpoint")[-1]["step"] == endings[0]["step"]


# Needs the 400 steps on one machine, too; test_one_machines_notice_drains_all_ranks_at_one_step
# stays.
@pytest.mark.full
def test_ranks_of_two_machines_compute_what_those_of_one_do(
    uninterrupted: Machine, drained: list[Machine]
) -> None:
    expected, losses = uninterrupted.losses(), drained[0].losses()
    assert len(losses) >= 60
    assert losses == {step: expected[step] for step in losses}


# What a rank resumes is in test_cut_runs.py, and what each of several gets in test_data_loader.py.
@pytest.mark.full
def test_two_ranks_resume_with_bit_equal_losses(
    uninterrupted: Machine, drained: list[Machine], drained_again: Machine
) -> None:
    expected = uninterrupted.losses()
    resumed = drained_again.losses()
    step = drained[0].ending(0)["step"]
    assert min(resumed) == step + 1
    assert len(resumed) >= 150
    assert resumed == {step: expected[step] for step in resumed}


@pytest.mark.full
def test_three_ranks_resume_with_bit_equal_losses(gangs: GangStarter) -> None:
    """From three ranks on, the order in which gradients are added up matters too."""
    config = {
        "model": "cnn",
        "data": "digits",
        "steps": 80,
        "batch_size": 62,
        "checkpoint_interval_steps": 40,
        "eval_every_epochs": 0,
    }
    (whole,) = gangs.start("three", config, ranks_each=3)
    assert whole.wait() == 0, whole.log()
    step = whole.saved_from(40)
    (rest,) = gangs.start("three-rest", config, ranks_each=3, resume=whole.checkpoint(step))
    assert rest.wait() == 0, rest.log()
    assert rest.losses() == {each: whole.losses()[each] for each in range(step + 1, 81)}


@pytest.mark.full
def test_one_rank_resumes_exactly_with_accumulation_and_loss_scaling(tmp_path: Path) -> None:
    config = {
        "model": "mlp",
        "data": "synthetic",
        "steps": 60,
        "checkpoint_interval_steps": 30,
        "accumulation": 2,
        "precision": "fp16",
        "optimizer": "sgd",
        "batch_size": 30,
    }
    whole = run_alone(tmp_path / "whole", config, None)
    rest = run_alone(tmp_path / "rest", config, whole / "checkpoints" / "step-000000000030")
    losses = [step_losses(folder) for folder in (whole, rest)]
    assert losses[1] == {step: losses[0][step] for step in range(31, 61)}
    endings = [json.loads((each / "ended-rank0.json").read_text()) for each in (whole, rest)]
    assert [ending["outcome"] for ending in endings] == ["finished", "finished"]


@pytest.mark.full
def test_drain_before_the_first_step_leaves_no_checkpoint(gangs: GangStarter) -> None:
    (machine,) = gangs.start("early", {"model": "cnn", "data": "digits", "steps": 100_000})
    machine.rank_pid(0)
    machine.rank_pid(1)
    machine.process.send_signal(signal.SIGTERM)
    machine.wait()
    endings = [machine.ending(rank) for rank in (0, 1)]
    assert [(each["outcome"], each["step"]) for each in endings] == [("drained", 0)] * 2
    assert list((machine.folder / "checkpoints").iterdir()) == []


@pytest.mark.parametrize("config", [{"data": "digits", "steps": 5, "model": "cn"}, {}])
def test_a_bad_configuration_ends_every_rank_with_a_sentence(
    tmp_path: Path, config: dict[str, Any]
) -> None:
    folder = run_alone(tmp_path / "bad", config, None, expected_code=2)
    ending = json.loads((folder / "ended-rank0.json").read_text())
    assert ending["error"]["kind"] == "configuration"
    assert "one of cnn, mlp, resnet18" in ending["error"]["message"]


def run_alone(
    folder: Path, config: dict[str, Any], resume: Path | None, expected_code: int = 0
) -> Path:
    """Runs one rank without torchrun and returns its folder."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    done = subprocess.run(
        [sys.executable, "-m", "trainer.training.train", "--config", folder / "config.json"],
        cwd=REPOSITORY,
        env=rank_variables(folder, resume, fence=1),
        capture_output=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert done.returncode == expected_code, done.stderr.decode()
    return folder


def step_losses(folder: Path) -> dict[int, float]:
    lines = [json.loads(line) for line in (folder / "progress.jsonl").read_text().splitlines()]
    return {line["step"]: line["loss"] for line in lines if line["type"] == "step"}
