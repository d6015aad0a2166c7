"""The estimate of a run, from the command line to the table: counted, measured, in words."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from trainer.protocol.gpu_models import GPU_MODELS, model_of_label
from trainer.training import estimate
from trainer.training.config import TrainConfig, parse_config
from trainer.training.estimating import run_estimate
from trainer.training.estimating.estimate_report import as_text
from trainer.training.estimating.run_estimate import EstimateReport, figures_of
from trainer.training.estimating.step_measurement import StepMeasurement, calibrate
from trainer.training.training_errors import ConfigError

IMAGENET: dict[str, Any] = {
    "model": "resnet50",
    "data": "/data/imagenet",
    "epochs": 90,
    "batch_size": 256,
    "precision": "bf16",
    "optimizer": "sgd",
}


def config_of(**changes: Any) -> TrainConfig:
    return parse_config({**IMAGENET, **changes})


def estimated(config: TrainConfig, gpus: list[str], **options: Any) -> EstimateReport:
    data, samples = estimate.data_of(config, "3x224x224", 1000, 1_281_167)
    prices = estimate.prices_named(options.pop("prices", []))
    return run_estimate.estimate(
        config, data, samples, estimate.gpus_named(gpus), prices, **options
    )


def run_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, config: dict[str, Any], *arguments: str
) -> int:
    path = tmp_path / "run.json"
    path.write_text(json.dumps(config))
    monkeypatch.setattr(sys, "argv", ["estimate", "--config", str(path), *arguments])
    return estimate.main()


def test_the_worked_example_shows_its_formula_and_sources() -> None:
    text = as_text(estimated(config_of(), ["A100:80GB", "A100:80GB:8", "L4"]))
    for words in (
        "resnet50: 25,557,032 parameters, 24.54 GFLOP to train on one sample",
        "= 3 × 8.178 GFLOP of the forward pass",
        "He et al. 2015, table 1",
        "450,411 steps of 256 = 115,305,216 samples, 90 epochs of 1,281,167; bf16, sgd",
        "2.83e+18 FLOP = 3 × 8.178e+09 × 115,305,216",
        "NVIDIA DeepLearningExamples, ResNet-50 v1.5",
        "several GPUs: 0.84 of their sum",
        "workers: 300 JPEGs a second each",
        "choose  8 × A100 80 GB, the fastest: 32 samples at once, accumulation 1, 7 workers for",
    ):
        assert words in text
    table = [line for line in text.splitlines() if re.match(r"(8 × )?(A100|L4) ", line)]
    rows = [re.split("  +", line) for line in table]
    assert [row[0] for row in rows] == ["8 × A100 80 GB", "A100 80 GB", "L4 24 GB"]
    assert "13.07" in rows[1]


def test_prices_decide_the_order_and_are_shown() -> None:
    config = config_of(precision="fp32", batch_size=64)
    prices = ["A100:80GB=1.5", "T4=0.2"]
    found = estimated(config, ["T4", "A100:80GB", "V100:16GB"], prices=prices)
    assert [one.gpu.label for one in found.gpus] == ["T4:16GB", "A100:80GB", "V100:16GB"]
    text = as_text(found)
    assert "no price" in text
    assert "choose  1 × T4 16 GB, the cheapest: 64 samples at once, accumulation 1, 2 work" in text
    assert "× 0.0625 for fp32" in text


def test_nothing_that_fits_is_said() -> None:
    assert "none of these GPUs has bf16" in as_text(estimated(config_of(), ["T4"]))


def test_other_models_are_counted() -> None:
    config = config_of(model="tests.training.models.own_models:Stack", data="digits")
    data, samples = estimate.data_of(config, None, 1000, None)
    assert samples == 1257
    figures = figures_of(config, data)
    assert (figures.family, figures.source) == ("transformer", "counted on one pass")
    assert figures.forward_flops == 2 * (64 * 32 + 3 * 32 * 32 + 32 * 10)
    convolutions = replace(config, model="tests.training.models.own_models:convolutions")
    assert figures_of(convolutions, data).family == "cnn"


def test_a_measurement_moves_the_table() -> None:
    cuda = torch.device("cuda", 0)
    measured = StepMeasurement(
        cuda, "NVIDIA A100", 256, step_seconds=256 / 1_225, peak_bytes=14 * 10**9
    )
    here = {"measured": measured, "gpu_here": model_of_label("A100:80GB")}
    plain = estimated(config_of(), ["H200"], prices=["H200=4"])
    moved = estimated(config_of(), ["H200"], prices=["H200=4"], **here)
    # Half as fast here as expected, so half as fast there.
    ratio = moved.gpus[0].samples_per_second / plain.gpus[0].samples_per_second
    assert ratio == pytest.approx(0.5, rel=0.01)
    assert moved.gpus[0].hours == pytest.approx(plain.gpus[0].hours / ratio)
    assert moved.gpus[0].usd == pytest.approx((plain.gpus[0].usd or 0) / ratio)
    text = as_text(moved)
    assert "256 samples in 209.0 ms = 1,225 samples/s, 14.0 GB" in text
    assert "50 % of what was expected of it" in text


def test_steps_are_measured_on_this_machine() -> None:
    config = parse_config({"model": "mlp", "data": "digits", "steps": 5})
    data, _ = estimate.data_of(config, None, 10, None)
    measured = calibrate(config, data, micro_batch=4, steps=3)
    assert (measured.name, measured.micro_batch, measured.peak_bytes) == ("this CPU", 4, None)
    assert measured.samples_per_second == 4 / measured.step_seconds > 0


def test_json_for_programs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--shape", "3x224x224", "--samples", "1000", "--gpu", "H100:8", "--json"]
    assert run_command(monkeypatch, tmp_path, IMAGENET, *arguments) == 0
    document = json.loads(capsys.readouterr().out)
    (gpu,) = document["gpus"]
    assert (gpu["gpu"]["name"], gpu["gpus"], gpu["micro_batch"]) == ("H100", 8, 32)
    assert document["total_flops"] == document["model"]["training_flops"] * document["samples"]
    assert document["measured"] is None


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--gpu", "A101"], "--gpu: 'A101' is not known; one of T4, P100"),
        (["--gpu", "A100:8:0"], "--gpu: 'A100:8:0' is not known"),
        (["--price", "A100"], "--price: 'A100' is not like A100:80GB=1.50"),
        (["--price", "X=1"], "--price: 'X=1' is not like"),
        (["--shape", "3x224"], "--shape: '3x224' is not like 3x224x224 or 1024"),
        (["--shape", "3x224x224"], "--shape: say how many --samples an epoch has"),
        ([], "with --shape and --samples the data is not needed"),
    ],
)
def test_bad_arguments_get_one_line(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    sentence: str,
) -> None:
    config = {**IMAGENET, "data": "digits"} if arguments else IMAGENET
    assert run_command(monkeypatch, tmp_path, config, *arguments) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    assert sentence in error


def test_every_kind_is_meant_when_none_is_named() -> None:
    assert [gpu for gpu, _ in estimate.gpus_named([])] == list(GPU_MODELS)
    with pytest.raises(ConfigError, match="cannot be counted"):
        figures_of(config_of(model="tests.training.test_estimate_command:build"), small_data())


def build(num_classes: int) -> Any:
    from torch import nn

    class Unwilling(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(64, num_classes)

        def forward(self, images: Any) -> Any:
            scale = float(images.sum().item())
            return self.head(images.flatten(1)) * scale

    return Unwilling()


def small_data() -> Any:
    config = config_of(data="digits")
    return estimate.data_of(config, None, 10, None)[0]
