"""How a rank's run ends in cases that need exact timing, driven in this process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from trainer.protocol.agent_report import STORE_UNAVAILABLE
from trainer.training.checkpoint import load_checkpoint, read_manifest
from trainer.training.config import load_config, parse_config
from trainer.training.drain import StopRequest
from trainer.training.gang import distributed, ending
from trainer.training.gang.ending import Ending
from trainer.training.gang.rank_environment import RankEnvironment, read_rank_environment
from trainer.training.rank_loop import run_rank, train
from trainer.training.rank_run import RankTrainer
from trainer.training.reporting.place import Place
from trainer.training.reporting.progress import ProgressLog
from trainer.training.started_rank import StartedRank
from trainer.training.training_errors import (
    CheckpointCorruptError,
    ConfigError,
    DataUnavailableError,
    LossNotFiniteError,
    PreflightError,
    RendezvousError,
    StepOutOfMemoryError,
    is_out_of_memory,
)

DIGITS = {"model": "mlp", "data": "digits", "steps": 20}  # 20 steps are just over one epoch


class StopsAtPhase(ProgressLog):
    """Progress that asks for a stop as soon as the run enters one phase."""

    def __init__(self, path: Path, stop: StopRequest, phase: str) -> None:
        super().__init__(path)
        self._stop = stop
        self._phase = phase

    def phase(self, phase: str, step: int) -> None:
        super().phase(phase, step)
        self._stop.requested = self._stop.requested or phase == self._phase


def environment_of(folder: Path) -> RankEnvironment:
    return read_rank_environment(
        {
            "LOWTIDE_PROGRESS_FILE": str(folder / "progress.jsonl"),
            "LOWTIDE_CHECKPOINT_DIR": str(folder / "checkpoints"),
        }
    )


def run_here(
    folder: Path, config: dict[str, Any], *, stop_at: str = "never", resume: Path | None = None
) -> Ending:
    environment = environment_of(folder)
    stop = StopRequest()
    progress = StopsAtPhase(environment.progress_file, stop, stop_at)
    threads = torch.get_num_threads()
    try:
        run = RankTrainer(parse_config(config), environment, progress, Place())
        if resume is not None:
            run.restore(resume)
        return train(run, stop)
    finally:
        distributed.leave()
        torch.set_num_threads(threads)


class LosesAPeerAtPhase(StopsAtPhase):
    """Progress by which a stop is asked for and, at the same moment, another rank is lost."""

    def phase(self, phase: str, step: int) -> None:
        super().phase(phase, step)
        if phase == self._phase:
            raise torch.distributed.DistNetworkError("connection closed by peer")


@pytest.mark.parametrize(
    ("phase", "outcome", "step", "code"),
    [("train", "drained", 0, 75), ("checkpoint", "failed", 5, 1)],
)
def test_a_peer_that_is_lost_while_it_stops_is_a_failure_once_a_step_was_made(
    tmp_path: Path, phase: str, outcome: str, step: int, code: int
) -> None:
    """Before the first step every rank ends by itself; later there is something to save."""
    config = tmp_path / "config.json"
    config.write_text(json.dumps({**DIGITS, "checkpoint_interval_steps": 5}))
    environment = environment_of(tmp_path)
    stop, threads = StopRequest(), torch.get_num_threads()
    progress = LosesAPeerAtPhase(environment.progress_file, stop, phase)
    try:
        rank = StartedRank(config, environment, progress, Place(), stop)
        result = run_rank(rank, load_config(config))
    finally:
        distributed.leave()
        torch.set_num_threads(threads)
    assert (result.outcome, result.step, result.exit_code) == (outcome, step, code)
    assert stop.nothing_to_save == (outcome == "drained")
    kind = None if result.error is None else result.error.kind
    assert kind == (None if outcome == "drained" else "peer_communication")


def evaluated_steps(folder: Path) -> list[int]:
    lines = [json.loads(line) for line in (folder / "progress.jsonl").read_text().splitlines()]
    return [line["step"] for line in lines if line["type"] == "eval"]


def test_a_drain_during_evaluation_saves_and_the_evaluation_is_done_after_resume(
    tmp_path: Path,
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    assert run_here(first, DIGITS, stop_at="eval") == Ending("drained", 20, 75)
    saved = first / "checkpoints" / "step-000000000020"
    assert read_manifest(saved)["final"] is False
    assert evaluated_steps(first) == []

    assert run_here(second, DIGITS, resume=saved) == Ending("finished", 20, 0)
    assert evaluated_steps(second) == [20]
    assert read_manifest(second / "checkpoints" / saved.name)["final"] is True


def test_a_drain_during_a_periodic_save_ends_after_the_next_step(tmp_path: Path) -> None:
    config = {**DIGITS, "checkpoint_interval_steps": 5}
    assert run_here(tmp_path, config, stop_at="checkpoint") == Ending("drained", 6, 75)
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    # That of step 5 is dropped if most of it was still to be written.
    assert names in (["step-000000000006"], ["step-000000000005", "step-000000000006"])


def test_a_resumed_run_that_is_drained_at_once_writes_nothing(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    run_here(first, {**DIGITS, "checkpoint_interval_steps": 5}, stop_at="checkpoint")
    saved = first / "checkpoints" / "step-000000000006"
    assert run_here(second, DIGITS, stop_at="train", resume=saved) == Ending("drained", 6, 75)
    assert list((second / "checkpoints").iterdir()) == []


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    run_here(tmp_path / "first", {**DIGITS, "steps": 2})
    saved = tmp_path / "first" / "checkpoints" / "step-000000000002"
    with pytest.raises(ConfigError, match="seed: 5 cannot continue a checkpoint made with 0"):
        run_here(tmp_path / "second", {**DIGITS, "seed": 5}, resume=saved)


def test_a_loss_that_is_no_number_ends_the_run(tmp_path: Path) -> None:
    config = {**DIGITS, "optimizer": "sgd", "learning_rate": 1000, "warmup_steps": 0, "steps": 200}
    with pytest.raises(FloatingPointError, match="lower learning_rate"):
        run_here(tmp_path, config)


def test_an_error_without_a_type_of_its_own_is_asked_for_its_cause() -> None:
    """torch has no type for a connection that gloo lost; its words may change."""
    looks: list[bool] = []

    def lost_a_peer() -> bool:
        looks.append(True)
        return True

    for error, kind in (
        (RuntimeError("anything"), "peer_communication"),
        (ValueError("Connection closed by peer"), "exception"),
        (torch.OutOfMemoryError("x"), "out_of_memory"),
    ):
        result = ending.failure(error, 4, lost_a_peer)
        assert result.error is not None
        assert result.error.kind == kind
    assert looks == [True]


def test_a_gpu_error_is_short_memory_by_its_number() -> None:
    error: Any = torch.AcceleratorError("CUDA error: out of memory")
    assert not is_out_of_memory(error)
    error.error_code = 2  # as PyTorch sets it, without a type
    assert is_out_of_memory(error)


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate"), "out_of_memory", 1),
        (MemoryError(), "out_of_memory", 1),
        (RuntimeError("[gloo/transport/tcp/pair.cc:1] out of memory, NCCL"), "exception", 1),
        (torch.distributed.DistNetworkError("no route"), "peer_communication", 1),
        (ConfigError("x"), "configuration", 2),
        (CheckpointCorruptError("x"), "checkpoint_corrupt", 65),
        (ValueError("Broken pipe"), "exception", 1),
    ],
)
def test_errors_are_sorted_by_what_they_mean(error: BaseException, kind: str, code: int) -> None:
    result = ending.failure(error, step=4)
    assert result.error is not None
    assert (result.outcome, result.step, result.exit_code) == ("failed", 4, code)
    assert result.error.kind == kind
    assert result.error.out_of_memory == (kind == "out_of_memory")
    assert result.error.peer_communication == (kind == "peer_communication")


@pytest.mark.parametrize(
    ("error", "kind", "lost_a_peer"),
    [
        (DataUnavailableError("x"), STORE_UNAVAILABLE, False),
        (LossNotFiniteError("x"), "loss_not_finite", False),
        (PreflightError("x"), "preflight", False),
        (RendezvousError("x"), "rendezvous", True),
        (StepOutOfMemoryError("x"), "out_of_memory", False),
    ],
)
def test_what_the_trainer_says_itself_has_a_kind_of_its_own(
    error: BaseException, kind: str, lost_a_peer: bool
) -> None:
    result = ending.failure(error, step=4)
    assert result.error is not None
    assert (result.error.kind, result.error.peer_communication) == (kind, lost_a_peer)
    assert (result.exit_code, result.error.message) == (1, "x")


def test_a_loss_that_is_no_number_leaves_the_last_checkpoint_intact(tmp_path: Path) -> None:
    config = {**DIGITS, "optimizer": "sgd", "steps": 40}
    run_here(tmp_path, {**config, "steps": 5})
    saved = tmp_path / "checkpoints" / "step-000000000005"
    broken = {**config, "learning_rate": 1000, "warmup_steps": 0}
    with pytest.raises(LossNotFiniteError, match="the loss is"):
        run_here(tmp_path, broken, resume=saved)
    _, contents = load_checkpoint(saved)
    assert all(each.isfinite().all() for each in contents["weights"].values())
