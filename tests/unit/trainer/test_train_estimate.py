"""The closed-form estimate against published figures, and its own rules."""

from typing import Any

import pytest

from trainer.protocol.gpu_models import GPU_NAMES, GpuModel, model_of_device, model_of_label
from trainer.protocol.model_figures import known_figures
from trainer.protocol.train_estimate import (
    RunFigures,
    estimate_on,
    fitting_micro_batch,
    ranked,
    scaled,
    training_memory,
)

IMAGE = (3, 224, 224)
IMAGENET_SAMPLES = 1_281_167
"""Training images of ILSVRC 2012 (Russakovsky et al. 2015, table 2)."""


def work(model: str = "resnet50", batch_size: int = 256, **options: Any) -> RunFigures:
    figures = known_figures(model, IMAGE, 1000)
    assert figures is not None
    return RunFigures(figures, batch_size, 90 * IMAGENET_SAMPLES, **options)


def gpu(label: str) -> GpuModel:
    model = model_of_label(label)
    assert model is not None
    return model


@pytest.mark.parametrize(
    ("model", "parameters", "giga_macs"),
    [
        # He et al. and torchvision's table of weights; Dosovitskiy, Touvron et al. and timm's.
        ("resnet18", 11_689_512, 1.81),
        ("resnet50", 25_557_032, 4.09),
        ("resnet152", 60_192_808, 11.51),
        ("vit_small", 22_050_664, 4.60),
        ("vit_base", 86_567_656, 17.56),
    ],
)
def test_parameters_and_operations_are_the_published_ones(
    model: str, parameters: int, giga_macs: float
):
    figures = known_figures(model, IMAGE, 1000)
    assert figures is not None
    assert figures.parameters == parameters
    assert figures.forward_flops / 2e9 == pytest.approx(giga_macs, abs=0.01)


def test_gpt_2_small_has_its_published_size():
    figures = known_figures("gpt_small", (1024,), 50_257)
    assert figures is not None
    assert figures.parameters == 124_439_808  # Radford et al.; 117M in the table is corrected there


@pytest.mark.parametrize(
    ("model", "shape"), [("gpt_small", IMAGE), ("resnet18", (64,)), ("cnn", (64,)), ("x", IMAGE)]
)
def test_what_is_not_known_has_no_figures(model: str, shape: tuple[int, ...]):
    assert known_figures(model, shape, 10) is None


@pytest.mark.parametrize(
    ("label", "gpus", "precision", "published"),
    [
        # NVIDIA DeepLearningExamples, resnet50v1.5, 21.03: AMP, TF32, and eight of them.
        ("A100:80GB", 1, "bf16", 2_470),
        ("A100:80GB", 1, "tf32", 938),
        ("A100:80GB", 8, "bf16", 16_621),
    ],
)
def test_resnet_50_trains_as_fast_as_measured(
    label: str, gpus: int, precision: str, published: float
):
    estimate = estimate_on(work(batch_size=256 * gpus, precision=precision), gpu(label), gpus)
    assert estimate.samples_per_second == pytest.approx(published, rel=0.05)
    assert estimate.limit == "memory traffic"


def test_ninety_epochs_of_imagenet():
    resnet = work()
    assert resnet.total_flops == pytest.approx(3 * 8.178e9 * 90 * 1_281_167, rel=1e-3)
    estimate = estimate_on(resnet, gpu("H200"), usd_per_gpu_hour=4.0)
    assert estimate.hours == pytest.approx(resnet.samples / estimate.samples_per_second / 3600)
    assert estimate.usd == pytest.approx(4.0 * estimate.hours)
    assert (estimate.micro_batch, estimate.accumulation) == (256, 1)
    assert estimate.workers == 20


def test_a_batch_that_does_not_fit_is_halved_and_a_model_that_never_fits_is_left_out():
    large = work("resnet152", batch_size=1024)
    small = gpu("T4")
    micro_batch = fitting_micro_batch(large, small, 1)
    assert micro_batch in (64, 128)
    room = 16 * 2**30
    assert training_memory(large, micro_batch).total < room
    assert training_memory(large, 2 * micro_batch).total > 0.9 * room
    assert estimate_on(large, small).accumulation == 1024 // micro_batch

    gpt = known_figures("gpt_small", (1024,), 50_257)
    assert gpt is not None
    whole = RunFigures(gpt, 2**20, 2**20, optimizer="adamw", precision="fp32")
    assert fitting_micro_batch(whole, small, 2**20) == 1
    huge = RunFigures(known_figures("gpt_small", (200_000,), 50_257), 8, 8)  # type: ignore[arg-type]
    assert fitting_micro_batch(huge, small, 1) == 0
    assert "T4" not in [one.gpu.name for one in ranked(huge)]


def test_memory_of_the_optimizer_and_of_more_ranks():
    plain, adam = training_memory(work(), 1), training_memory(work(optimizer="adamw", ema=True), 1)
    parameters = 25_557_032
    assert plain.optimizer == 4 * parameters
    assert adam.optimizer == 12 * parameters
    assert training_memory(work(), 1, gpus=2).gradients == 8 * parameters
    assert training_memory(work(precision="fp32"), 1).weights == 4 * parameters
    assert plain.weights == 6 * parameters
    assert training_memory(work(), 64).activations == 64 * plain.activations


def test_kinds_are_ranked_by_price_where_there_is_one_and_by_time_elsewhere():
    by_time = ranked(work())
    assert [one.hours for one in by_time] == sorted(one.hours for one in by_time)
    prices = {"L4": 0.2, "A100:80GB": 1.5, "A100": 1.0, "H100": 90.0}
    by_price = [one.gpu.label for one in ranked(work(), usd_per_gpu_hour=prices)]
    assert by_price[:4] == ["A100:40GB", "L4:24GB", "A100:80GB", "H100:80GB"]


@pytest.mark.parametrize(
    ("precision", "missing"),
    [
        ("fp32", set()),
        ("fp16", set()),
        ("bf16", {"P100", "V100", "T4"}),
        ("tf32", {"P100", "V100", "T4"}),
        ("fp8", {"P100", "V100", "T4", "A10G", "A100"}),
    ],
)
def test_a_kind_without_the_numbers_is_left_out(precision: str, missing: set[str]):
    found = {one.gpu.name for one in ranked(work(precision=precision, batch_size=8))}
    assert set(GPU_NAMES) - found == missing


def test_a_tiny_step_is_as_long_as_its_launches():
    figures = known_figures("gpt_tiny", (8,), 64)
    assert figures is not None
    estimate = estimate_on(RunFigures(figures, 8, 8_000), gpu("H200"))
    assert (estimate.step_seconds, estimate.limit) == (0.0003, "launches")


def test_a_measurement_is_carried_over_by_the_ratio_of_both_estimates():
    here, there = estimate_on(work(), gpu("A100:80GB")), estimate_on(work(), gpu("H200"))
    assert scaled(2_000.0, here, there) == pytest.approx(2_000 * 4_800 / 2_039)


@pytest.mark.parametrize(
    ("name", "gib", "label"),
    [
        ("NVIDIA H200", 140.4, "H200:141GB"),
        ("Tesla V100-SXM2-16GB", 15.8, "V100:16GB"),
        ("Tesla V100-SXM2-32GB", 31.7, "V100:32GB"),
        ("NVIDIA A100-SXM4-80GB", 79.3, "A100:80GB"),
        ("NVIDIA A10G", 22.0, "A10G:24GB"),
        ("NVIDIA L4", 22.0, "L4:24GB"),
        ("NVIDIA L40S", 44.4, "L40S:48GB"),
        ("Tesla T4", 14.7, "T4:16GB"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 95.0, "RTX-PRO-6000:96GB"),
        ("NVIDIA H100 PCIe", 79.2, None),
        ("NVIDIA GH200 480GB", 95.0, None),
        ("NVIDIA GeForce RTX 3090", 24.0, None),
    ],
)
def test_a_gpu_is_found_by_what_its_driver_calls_it(name: str, gib: float, label: str | None):
    model = model_of_device(name, int(gib * 2**30))
    assert (None if model is None else model.label) == label


@pytest.mark.parametrize(
    ("text", "label"),
    [("a100:80gb", "A100:80GB"), ("A100", "A100:40GB"), ("A100:81GB", None), ("x", None)],
)
def test_a_gpu_is_found_by_its_label(text: str, label: str | None):
    model = model_of_label(text)
    assert (None if model is None else model.label) == label
