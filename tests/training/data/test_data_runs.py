"""Whole runs on files: exact through a signal to all processes, and ended well by bad data."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.object_stores.object_store_fakes import S3Fake
from tests.training.data import small_data
from tests.training.data.test_data_buckets import run as run_bucket_program
from tests.training.gang.torchrun_gang import GangStarter
from tests.training.loop.interrupted_run import InterruptedRun
from tests.training.loop.test_training_runs import run_alone, step_losses
from trainer.agent.attempt.end_files import read_end
from trainer.protocol.agent_report import STORE_UNAVAILABLE
from trainer.protocol.train_options.data import DataOptions
from trainer.training.checkpoint import load_checkpoint
from trainer.training.checkpoint.folder import CheckpointFolder
from trainer.training.data import SampleOrder, load_data

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


@pytest.mark.full
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


@pytest.mark.full
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


@pytest.mark.full
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


# In every run: the error, test_data_that_is_not_there_is_named (test_data_layouts.py), and the end
# that it gives a run, test_a_bad_configuration_ends_every_rank_with_a_sentence
# (test_training_runs.py).
@pytest.mark.full
def test_data_that_is_not_there_ends_before_the_first_step(tmp_path: Path) -> None:
    config = {**PHOTOS, "data": "./nowhere"}
    folder = run_alone(tmp_path / "run", config, None, expected_code=2)
    ending = json.loads((folder / "ended-rank0.json").read_text())
    assert ending["step"] == 0
    assert "the folder nowhere is not there" in ending["error"]["message"]


@pytest.mark.full
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


@pytest.mark.full
def test_a_checkpoint_on_its_way_when_a_run_fails_is_finished(tmp_path: Path) -> None:
    """ResNet-18's takes some time to write; the sample that is missed by step 2 none."""
    root = small_data.image_folders(tmp_path / "flowers", each=6, parts=("train", "val"))
    data = load_data(str(root), 0, DataOptions(cache="off"))
    order = SampleOrder(0, len(data.train), PHOTOS["batch_size"])
    Path(data.train.name(int(order.batch(1)[0]))).write_bytes(b"no image")
    config = {**PHOTOS, "data": str(root), "model": "resnet18", "checkpoint_interval_steps": 1}
    folder = run_alone(tmp_path / "run", {**config, "workers": 0}, None, expected_code=2)
    manifest, _ = load_checkpoint(folder / "checkpoints" / "step-000000000001")
    assert manifest["step"] == json.loads((folder / "ended-rank0.json").read_text())["step"] == 1
    lines = [json.loads(line) for line in (folder / "progress.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line["type"] == "checkpoint"] == [1]


# The error: test_data_buckets.py, ..._or_refuses_gets_one_line. Its word: test_training_endings.py,
# test_what_the_trainer_says_itself_has_a_kind_of_its_own.
@pytest.mark.full
def test_a_bucket_that_falls_silent_is_worth_another_try(tmp_path: Path) -> None:
    """By the word that the control plane knows it by; what was saved before stays."""
    fake = S3Fake()
    try:
        here = small_data.image_folders(tmp_path / "flowers", each=12, parts=("train",))
        address = f"{fake.uri}/flowers"
        run_bucket_program(fake, "upload", str(here), address)
        config = {**PHOTOS, "data": address, "steps": 5_000, "checkpoint_interval_steps": 1}
        run = InterruptedRun(tmp_path / "run", config)
        with run.attempt(variables=fake.environment()) as attempt:
            assert attempt.wait_for_step(3), attempt.log()
            fake.steering.denied = True
            code = attempt.wait()
    finally:
        fake.close()
    error = read_end(run.folder, code).error
    assert error is not None
    assert (error.type, error.rank, error.peer_communication) == (STORE_UNAVAILABLE, 0, False)
    assert error.message.startswith(f"data: {address}/")
    assert "Traceback" not in attempt.log()
    saved = CheckpointFolder(run.folder / "checkpoints").complete()
    assert saved
    for path in saved:
        load_checkpoint(path)
