"""Whole runs on files: exact through a signal to all processes, and ended well by bad data."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.training import small_data
from tests.training.test_training_runs import run_alone, step_losses
from tests.training.torchrun_gang import GangStarter

PHOTOS: dict[str, Any] = {
    "model": "cnn",
    "image_size": 16,
    "steps": 24,
    "batch_size": 8,
    "workers": 2,
    "eval_every_epochs": 0,
    "checkpoint_interval_steps": 8,
    "cache": "off",
}


@pytest.fixture(scope="module")
def flowers(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(small_data.image_folders(tmp_path_factory.mktemp("flowers"), each=10))


def test_a_signal_to_every_process_drains_and_the_rest_is_exact(
    flowers: str, tmp_path: Path, gangs: GangStarter
) -> None:
    """Cropped and flipped photos, read by workers; then the rank reads by itself."""
    config = {**PHOTOS, "data": flowers}
    whole = step_losses(run_alone(tmp_path / "whole", config, None))
    slow = {**config, "step_delay_seconds": 0.2}
    (machine,) = gangs.start("photos", slow, ranks_each=1)
    machine.wait_for_step(4)
    # The whole group of the rank, its workers included, as torchrun does it.
    os.killpg(os.getpgid(machine.rank_pid(0)), signal.SIGTERM)
    machine.wait()
    drained = machine.ending(0)
    assert (drained["outcome"], drained["exit_code"]) == ("drained", 75)
    step = drained["step"]
    assert machine.losses() == {number: whole[number] for number in range(1, step + 1)}
    rest = run_alone(tmp_path / "rest", {**config, "workers": 0}, machine.checkpoint(step))
    assert step_losses(rest) == {number: whole[number] for number in range(step + 1, 25)}


def test_a_language_model_learns_from_a_token_file(tmp_path: Path) -> None:
    tokens = (np.arange(4_000) % 11).astype(np.uint16)
    tokens.tofile(tmp_path / "corpus.bin")
    config = {
        "model": "gpt_tiny",
        "data": str(tmp_path / "corpus.bin"),
        "context_length": 16,
        "vocabulary": 11,
        "steps": 40,
        "batch_size": 16,
        "learning_rate": 0.01,
        "model_options": {"dropout": 0.0},
    }
    folder = run_alone(tmp_path / "run", config, None)
    losses = step_losses(folder)
    assert losses[40] < 0.3 < 2 < losses[1]
    lines = [json.loads(line) for line in (folder / "progress.jsonl").read_text().splitlines()]
    score = [line for line in lines if line["type"] == "eval"][-1]
    assert score["test_accuracy"] > 0.95


def test_a_damaged_sample_in_the_middle_ends_the_run_and_names_it(tmp_path: Path) -> None:
    root = small_data.image_folders(tmp_path / "flowers", each=6, parts=("train", "val"))
    (root / "train" / "rose" / "torn.png").write_bytes(small_data.image_bytes(1)[:200])
    config = {**PHOTOS, "data": str(root), "checkpoint_interval_steps": 1}
    folder = run_alone(tmp_path / "run", config, None, expected_code=2)
    ending = json.loads((folder / "ended-rank0.json").read_text())
    assert ending["error"]["kind"] == "configuration"
    assert f"{root}/train/rose/torn.png: it cannot be decoded" in ending["error"]["message"]
    kept = run_alone(tmp_path / "kept", {**config, "on_bad_sample": "skip", "steps": 4}, None)
    assert max(step_losses(kept)) == 4
    lines = [json.loads(line) for line in (kept / "progress.jsonl").read_text().splitlines()]
    told = [line["message"] for line in lines if line["type"] == "bad_samples"]
    assert told
    assert all("rose/torn.png: it cannot be decoded" in message for message in told)


def test_data_that_is_not_there_ends_before_the_first_step(tmp_path: Path) -> None:
    config = {**PHOTOS, "data": "./nowhere"}
    folder = run_alone(tmp_path / "run", config, None, expected_code=2)
    ending = json.loads((folder / "ended-rank0.json").read_text())
    assert ending["step"] == 0
    assert "the folder nowhere is not there" in ending["error"]["message"]


def test_a_checkpoint_of_other_files_is_refused(tmp_path: Path) -> None:
    """The same name and other samples would be another order, unseen."""
    root = small_data.image_folders(tmp_path / "flowers", each=3)
    config = {**PHOTOS, "data": str(root), "steps": 2, "workers": 0}
    run_alone(tmp_path / "run", config, None)
    (root / "rose" / "late.png").write_bytes(small_data.image_bytes(5))
    saved = tmp_path / "run" / "checkpoints" / "step-000000000002"
    again = run_alone(tmp_path / "again", {**config, "steps": 4}, saved, expected_code=2)
    ending = json.loads((again / "ended-rank0.json").read_text())
    assert "data_digest" in ending["error"]["message"]
