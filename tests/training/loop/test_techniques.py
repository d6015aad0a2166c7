"""What the options change in a run of one rank: precision, memory, optimizer, averages, target."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.servers.finished_commands import run_command
from tests.support.sources.source_tree import ROOT
from tests.support.stories.presence import present
from tests.training.loop.one_rank import STACK, OnStep, train_here
from trainer.training.checkpoint import load_checkpoint
from trainer.training.config import parse_config
from trainer.training.kernels.compilation import load_compiled_code
from trainer.training.kernels.float8 import Float8Linear, use_float8
from trainer.training.loop.learning_rate import learning_rate_at
from trainer.training.loop.optimizer import make_optimizer
from trainer.training.rank_run import RankTrainer
from trainer.training.training_errors import ConfigError, StepOutOfMemoryError

CHEAP = {**STACK, "steps": 6}


@pytest.mark.parametrize(
    "change",
    [
        {"precision": "bf16"},
        {"precision": "fp16", "clip_norm": 0.5},
        # In every run: the order in memory alone, of a small network (below).
        pytest.param(
            {"channels_last": "on", "model": "resnet18", "steps": 1, "batch_size": 4},
            marks=pytest.mark.full,
        ),
        {"optimizer": "sgd", "momentum": 0.8, "nesterov": True, "clip_norm": 0.1},
        {"optimizer_kernel": "foreach", "decay_all": False, "deterministic": True},
        {"optimizer_kernel": "loop", "label_smoothing": 0.1},
        {"schedule": "step", "warmup_steps": 0},
    ],
    ids=lambda change: ",".join(change),
)
def test_every_technique_trains_and_resumes_bit_for_bit(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    config = {**CHEAP, **change}
    whole = train_here(tmp_path / "whole", config)
    assert whole.ending.outcome == "finished"
    if config["steps"] == 1:
        return
    cut = train_here(tmp_path / "cut", config, stop_after=2)
    rest = train_here(tmp_path / "rest", config, resume=cut.checkpoint(3))
    assert {**cut.losses, **rest.losses} == whole.losses
    expected, got = whole.weights(), rest.weights()
    assert all(torch.equal(got[name], expected[name]) for name in expected)


def test_channels_last_is_the_order_of_weights_and_images_in_memory(tmp_path: Path) -> None:
    """Of three channels and of sixteen: with one, both orders are the same."""
    config = {**CHEAP, "model": "cnn", "steps": 1, "channels_last": "on"}
    config |= {"data": "synthetic", "synthetic_shape": [3, 8, 8], "synthetic_samples": 320}
    images: list[bool] = []

    def watch(run: RankTrainer) -> OnStep:
        def look(model: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
            if model.training:
                images.append(inputs[0].is_contiguous(memory_format=torch.channels_last))

        run.learner.model.register_forward_pre_hook(look)
        return lambda _: None

    done = train_here(tmp_path, config, watch=watch)
    assert done.ending.outcome == "finished"
    assert images == [True]
    weight = done.run.learner.model.get_parameter("2.weight")
    assert weight.is_contiguous(memory_format=torch.channels_last)


def test_the_kernel_of_an_optimizer_is_not_the_checkpoints(tmp_path: Path) -> None:
    """One rank's fused step may be gone on from by ranks whose shards have no such kernel."""
    sgd = {**CHEAP, "optimizer": "sgd"}
    fused = train_here(tmp_path / "fused", sgd, stop_after=2)
    other = {**sgd, "optimizer_kernel": "foreach"}
    rest = train_here(tmp_path / "rest", other, resume=fused.checkpoint(3))
    (group,) = rest.run.learner.optimizer.param_groups
    assert (group["fused"], group["foreach"]) == (None, True)


def test_fused_sgd_of_shards_is_refused_in_a_sentence() -> None:
    model = torch.nn.Linear(2, 2)
    for parameter in model.parameters():
        parameter.placements = ("as a DTensor has them",)  # type: ignore[attr-defined]
    config = parse_config({**CHEAP, "optimizer": "sgd", "optimizer_kernel": "fused"})
    with pytest.raises(ConfigError, match="optimizer_kernel: PyTorch has no fused sgd for"):
        make_optimizer(config, model)
    kernel = make_optimizer(replace(config, optimizer_kernel="auto"), model)
    assert kernel.param_groups[0]["foreach"]


@pytest.mark.parametrize("precision", ["tf32", "fp8"])
def test_a_precision_that_needs_another_gpu_names_it(tmp_path: Path, precision: str) -> None:
    with pytest.raises(ConfigError, match=rf"precision: {precision} needs an NVIDIA GPU, .* newer"):
        train_here(tmp_path, {**CHEAP, "precision": precision})


def test_recomputed_activations_change_no_bit(tmp_path: Path) -> None:
    plain = train_here(tmp_path / "plain", CHEAP)
    saving = train_here(tmp_path / "saving", {**CHEAP, "activation_checkpointing": True})
    assert saving.losses == plain.losses
    expected, got = plain.weights(), saving.weights()
    assert all(torch.equal(got[name], expected[name]) for name in expected)


def test_a_model_without_blocks_cannot_recompute_them(tmp_path: Path) -> None:
    config = {**CHEAP, "model": "mlp", "activation_checkpointing": True}
    with pytest.raises(ConfigError, match="mlp has no repeated blocks"):
        train_here(tmp_path, config)


def test_out_of_memory_says_what_needs_how_much_and_what_would_do(tmp_path: Path) -> None:
    config = {
        **CHEAP,
        "model": "tests.training.models.own_models:Hungry",
        "model_options": {"most": 8},
    }
    with pytest.raises(StepOutOfMemoryError) as caught:
        train_here(tmp_path, config)
    said = str(caught.value)
    assert said.startswith("a micro-batch of 32 samples does not fit into memory: weights 0.0 MB")
    for advice in ("on_oom: adapt", "raise accumulation to 2", "bf16", "activation_checkpointing"):
        assert advice in said


def test_out_of_memory_adapts_with_the_same_samples_and_keeps_the_plan(tmp_path: Path) -> None:
    hungry = {
        **CHEAP,
        "model": "tests.training.models.own_models:Hungry",
        "model_options": {"most": 8},
        "on_oom": "adapt",
        "precision": "fp32",
    }
    cut = train_here(tmp_path / "cut", hungry, stop_after=2)
    plans = [(line["micro_batch"], line["accumulation"]) for line in cut.lines("memory")]
    assert plans == [(16, 2), (8, 4)]
    # The stop was seen between two parts of the third step, which was then as if not begun.
    assert cut.ending.step == 2
    rest = train_here(tmp_path / "rest", hungry, resume=cut.checkpoint(2))
    assert rest.lines("memory") == []
    asked = train_here(
        tmp_path / "asked", {**hungry, "accumulation": 4, "model_options": {"most": 8}}
    )
    assert {**cut.losses, **rest.losses} == asked.losses


def test_when_the_smallest_part_does_not_fit_activations_are_recomputed(tmp_path: Path) -> None:
    config = {
        **CHEAP,
        "model": "tests.training.models.own_models:Hungry",
        "model_options": {"most": 0, "recomputed_most": 8},
        "on_oom": "adapt",
    }
    result = train_here(tmp_path, config)
    plans = [(line["micro_batch"], line["recompute"]) for line in result.lines("memory")]
    assert plans == [*((n, False) for n in (16, 8, 4, 2)), *((n, True) for n in (32, 16, 8))]


def test_when_nothing_fits_the_run_ends_with_the_explanation(tmp_path: Path) -> None:
    config = {
        **CHEAP,
        "model": "tests.training.models.own_models:Hungry",
        "model_options": {"most": 0},
        "on_oom": "adapt",
    }
    with pytest.raises(StepOutOfMemoryError, match="micro-batch of 2 samples does not fit"):
        train_here(tmp_path, config)


@pytest.mark.parametrize(
    ("options", "rates"),
    [
        ({"schedule": "constant"}, [0.5, 1.0, 1.0, 1.0, 1.0]),
        ({"schedule": "linear"}, [0.5, 1.0, 1.0, 0.5, 0.125]),
        ({"schedule": "linear", "final_learning_rate_ratio": 0.2}, [0.5, 1.0, 1.0, 0.6, 0.3]),
        ({"schedule": "cosine"}, [0.5, 1.0, 1.0, 0.5, 0.03806023374435663]),
        ({"schedule": "step", "schedule_drops": [0.5, 0.8]}, [0.5, 1.0, 1.0, 0.1, 0.01]),
        (
            {"swa_from": 0.4, "swa_learning_rate": 0.05},
            [0.5, 1.0, 1.0, 0.05, 0.05],
        ),
    ],
)
def test_the_learning_rate_follows_its_schedule(
    options: dict[str, Any], rates: list[float]
) -> None:
    config = parse_config(
        {"model": "mlp", "data": "digits", "steps": 10, "warmup_steps": 2, "learning_rate": 1.0}
        | options
    )
    got = [learning_rate_at(step, 10, config) for step in (0, 1, 2, 6, 9)]
    assert got == pytest.approx(rates)


def test_biases_and_norms_can_be_left_out_of_the_decay(tmp_path: Path) -> None:
    result = train_here(tmp_path, {**CHEAP, "decay_all": False, "steps": 1})
    decayed, kept = result.run.learner.optimizer.param_groups
    assert {each.ndim for each in decayed["params"]} == {2}
    assert {each.ndim for each in kept["params"]} == {1}
    assert (decayed["weight_decay"], kept["weight_decay"]) == (0.01, 0.0)


@pytest.mark.parametrize("change", [{"ema_decay": 0.9}, {"swa_from": 0.3, "swa_every_steps": 2}])
def test_averages_are_kept_through_an_interruption(tmp_path: Path, change: dict[str, Any]) -> None:
    config = {**STACK, **change}
    whole = train_here(tmp_path / "whole", config)
    cut = train_here(tmp_path / "cut", config, stop_after=6)
    rest = train_here(tmp_path / "rest", config, resume=cut.checkpoint(7))
    assert rest.lines("eval")[0] == {**whole.lines("eval")[0], "at": rest.lines("eval")[0]["at"]}
    expected, got = whole.weights(), rest.weights()
    assert all(torch.equal(got[name], expected[name]) for name in expected)


def test_an_exponential_average_is_scored_and_the_weights_go_on(tmp_path: Path) -> None:
    plain = train_here(tmp_path / "plain", STACK)
    averaged = train_here(tmp_path / "averaged", {**STACK, "ema_decay": 0.9})
    assert averaged.losses == plain.losses
    loss, other = (run.lines("eval")[0]["validation_loss"] for run in (plain, averaged))
    assert loss != other
    expected, got = plain.weights(), averaged.weights()
    assert all(torch.equal(got[name], expected[name]) for name in expected)


def test_an_even_average_becomes_the_model_with_statistics_of_its_own(tmp_path: Path) -> None:
    config = {**STACK, "swa_from": 0.5, "swa_every_steps": 2}
    snapshots: list[torch.Tensor] = []

    def watch(run: RankTrainer) -> OnStep:
        weight = run.learner.model.get_parameter("first.weight")

        def keep(step: int) -> None:
            if step in (6, 8, 10, 12):
                snapshots.append(weight.detach().clone())

        return keep

    result = train_here(tmp_path, config, watch=watch)
    mean = torch.stack(snapshots).mean(0)
    assert len(snapshots) == 4
    weights = result.weights()
    assert torch.allclose(weights["first.weight"], mean, atol=1e-6)
    norm = result.run.learner.model.get_submodule("blocks.0.1")
    assert norm.momentum == 0.1
    assert weights["blocks.0.1.num_batches_tracked"] < 12


@pytest.mark.parametrize(
    ("metric", "value", "sign"), [("validation_accuracy", 0.2, ">="), ("test_loss", 50.0, "<=")]
)
def test_a_run_ends_when_its_target_is_reached(
    tmp_path: Path, metric: str, value: float, sign: str
) -> None:
    config = {
        **STACK,
        "epochs": 9,
        "steps": None,
        "eval_every_epochs": 1,
        "target_metric": metric,
        "target_value": value,
    }
    result = train_here(tmp_path / "one", config)
    assert result.ending.outcome == "finished"
    assert result.ending.reason.startswith(f"target reached: {metric} ")
    assert f" {sign} {value:g}" in result.ending.reason
    assert result.ending.step == 40  # the first step of the second epoch: 1,257 samples by 32
    again = train_here(tmp_path / "two", config, resume=result.checkpoint(40))
    assert again.losses == {}
    assert again.ending.reason == result.ending.reason


def test_a_target_that_is_never_scored_is_refused(tmp_path: Path) -> None:
    config = {**STACK, "target_metric": "validation_accurracy", "target_value": 1}
    with pytest.raises(ConfigError, match="one of validation_accuracy, validation_loss, test_acc"):
        train_here(tmp_path, config)


def test_products_in_eight_bits_are_close_both_ways() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 32), torch.nn.Linear(32, 32), torch.nn.Linear(32, 10)
    )
    inputs = torch.randn(48, 64, requires_grad=True)

    def gradients() -> list[torch.Tensor]:
        weight, bias = model.get_parameter("0.weight"), model.get_parameter("1.bias")
        return [present(each.grad) for each in (inputs, weight, bias)]

    plain = model[:2](inputs)
    plain.square().mean().backward()
    wanted = [each.clone() for each in gradients()]
    inputs.grad = None
    model.zero_grad()
    assert use_float8(model) == 2  # the last layer stays as it is
    assert isinstance(model[0], Float8Linear)
    with torch.autocast("cpu", torch.bfloat16):
        narrow = model[:2](inputs)
        narrow.float().square().mean().backward()
    assert narrow.dtype == torch.bfloat16
    assert relative_error(narrow, plain) < 0.06
    got = gradients()
    assert all(relative_error(one, other) < 0.1 for one, other in zip(got, wanted, strict=True))


def relative_error(got: torch.Tensor, wanted: torch.Tensor) -> float:
    return float(((got.float() - wanted).norm() / wanted.norm()).detach())


def test_compiling_is_a_phase_of_its_own_before_the_first_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOWTIDE_CACHE_DIR", str(tmp_path / "cache"))
    for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "cache"))
    monkeypatch.setattr(torch, "compile", lambda call, **_: call)  # which takes too long here
    for chosen in ("on", "off"):
        result = train_here(tmp_path / chosen, {**CHEAP, "steps": 1, "compile": chosen})
        phases = [line["phase"] for line in result.lines("phase")]
        assert ("compile" in phases[: phases.index("train")]) is (chosen == "on"), phases


# In a process of its own: PyTorch's compiler needs the distutils of setuptools, and other tests may
# have imported Python's before.
@pytest.mark.full
def test_compiled_code_is_kept_and_travels_with_the_checkpoint(tmp_path: Path) -> None:
    kept = {"LOWTIDE_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)}
    code = "from tests.training.loop.test_techniques import train_compiled; train_compiled()"
    done = run_command(
        [sys.executable, "-c", code], timeout=540, cwd=tmp_path, env={**os.environ, **kept}
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    assert any((tmp_path / "cache" / "inductor").rglob("*.so"))
    _, contents = load_checkpoint(tmp_path / "run" / "checkpoints" / "step-000000000002")
    packed = contents["training_state"]["compiled_code"]
    assert (packed.dtype, packed.ndim) == (torch.uint8, 1)
    load_compiled_code(packed)


def train_compiled() -> None:
    """Two steps of a small compiled model, in the current folder."""
    # This imports the compiler, which names its own cache folder at that moment.
    from torch._inductor import config as compiler

    for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
        os.environ.pop(name, None)
    small = {"model_options": {"depth": 1}, "steps": 2}
    config = {**CHEAP, **small, "compile": "on", "activation_checkpointing": True}
    # Trying out which vector instructions there are takes longer than compiling a small model.
    with compiler.patch("cpp.vec_isa_ok", False):
        result = train_here(Path("run").resolve(), config)
    assert result.ending.outcome == "finished"
