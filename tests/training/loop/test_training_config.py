"""The configuration file: what is accepted, and the sentence for what is not."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.servers.finished_commands import run_command
from tests.training.gang.torchrun_gang import REPOSITORY
from trainer.training.config import DATA_NAMES, MODEL_NAMES, load_config, parse_config
from trainer.training.data import DATA_SETS
from trainer.training.gang.rank_environment import read_rank_environment
from trainer.training.models import MODELS
from trainer.training.training_errors import ConfigError

GOOD: dict[str, Any] = {"model": "cnn", "data": "digits", "epochs": 3}


def test_defaults() -> None:
    config = parse_config(GOOD)
    assert (config.batch_size, config.precision, config.optimizer) == (64, "fp32", "adamw")
    assert config.peak_learning_rate == 0.002
    assert config.total_steps(1257) == 59  # 3 x 1,257 samples in batches of 64, rounded up
    assert parse_config({**GOOD, "checkpoint_interval_seconds": "auto"}).epochs == 3


def test_names_are_those_that_exist() -> None:
    assert set(MODEL_NAMES) == set(MODELS)
    assert set(DATA_NAMES) == set(DATA_SETS)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"batchsize": 4}, "did you mean 'batch_size'?"),
        ({"model": "resnet81"}, "; did you mean 'resnet18'?"),
        ({"data": "cifar"}, "one of digits, synthetic"),
        ({"model": None}, "null is not known"),
        ({"model": ["cnn"]}, "is not known"),
        ({"steps": 5}, "exactly one of epochs and steps"),
        ({"epochs": None}, "exactly one of epochs and steps"),
        ({"epochs": 0}, "epochs: expected a whole number 1 to"),
        ({"epochs": True}, "got true"),
        ({"batch_size": 1.5}, "batch_size: expected a whole number"),
        ({"batch_size": 10**400}, "batch_size: expected a whole number"),
        ({"learning_rate": float("nan")}, "learning_rate: expected a number"),
        ({"learning_rate": -1}, "learning_rate: expected a number"),
        ({"weight_decay": "0"}, "weight_decay: expected a number"),
        ({"weight_decay": 10**400}, "weight_decay: expected a number"),
        ({"precision": "int8"}, "one of fp32, bf16, fp16"),
        ({"accumulation": 65}, "cannot be cut from a batch_size of 64"),
        (
            {"checkpoint_interval_steps": 5, "checkpoint_interval_seconds": "auto"},
            "at most one of checkpoint_interval_steps",
        ),
        ({"ema_decay": 0.9, "swa_from": 0.5}, "at most one of ema_decay and swa_from"),
        ({"target_metric": "validation_loss"}, "set both target_metric and target_value"),
        ({"schedule_drops": [0.8, 0.5]}, "schedule_drops: must rise"),
        ({"betas": [0.9, 1]}, "betas: must be below 1"),
        ({"nesterov": True, "momentum": 0}, "nesterov: needs a momentum"),
        ({"checkpoint_interval_seconds": "often"}, "expected a number 0.1 to 86400"),
        ({"step_delay_seconds": -0.1}, "step_delay_seconds: expected a number 0 to 60"),
    ],
)
def test_bad_values_get_a_sentence(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config({**GOOD, **change})
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[1]", "expected a JSON object, got list"),
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("\xff", "is not JSON"),
        ('{"model": "cnn", "model": "mlp"}', "a key is given twice"),
        ('{"data": "digits"}', "model is missing: one of cnn"),
        (" " * (1 << 20) + "{}", "is larger than"),
    ],
)
def test_bad_files_get_a_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError, match=sentence):
        load_config(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*none\.json: No such file"):
        load_config(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({}, "LOWTIDE_PROGRESS_FILE is not set"),
        ({"LOWTIDE_PROGRESS_FILE": "/p"}, "LOWTIDE_CHECKPOINT_DIR is not set"),
        (
            {"LOWTIDE_PROGRESS_FILE": "/p", "LOWTIDE_CHECKPOINT_DIR": "/c", "RANK": "-1"},
            "RANK is '-1', not a whole number",
        ),
    ],
)
def test_a_bad_environment_gets_a_sentence(variables: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        read_rank_environment(variables)


@pytest.mark.parametrize(
    ("change", "code", "sentence"),
    [({}, 0, "config.json: ok"), ({"modle": "cnn"}, 2, "error: unknown key 'modle'; did you mean")],
)
def test_validate_only_checks(
    tmp_path: Path, change: dict[str, Any], code: int, sentence: str
) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**GOOD, **change}))
    done = run_command(
        [sys.executable, "-m", "trainer.training.train", "--config", path, "--validate"],
        timeout=300,
        cwd=REPOSITORY,
    )
    output = (done.stdout + done.stderr).strip()
    assert (done.returncode, len(output.splitlines())) == (code, 1)
    assert sentence in output
    assert list(tmp_path.iterdir()) == [path]
