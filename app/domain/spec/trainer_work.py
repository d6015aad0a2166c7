"""What a bundled-trainer job needs that its spec does not say: memory of a GPU, and hours of work.

Lives here: the reading of a spec's `trainer` section for the trainer's own closed-form estimate.
Both answers are "not known" for a model or data that cannot be told from the spec alone. Not here:
the formulas with their sources (`trainer.protocol.train_estimate`), which counts other models too
when it runs where PyTorch is.
"""

from __future__ import annotations

import functools
import json
import math
from dataclasses import dataclass
from typing import Final

from app.domain.market.gpu_choice import GpuChoice, gpu_words
from app.domain.spec.job_spec import JobSpec
from app.domain.spec.job_spec_fields import ESTIMATE_HOURS_MAX, Estimate
from app.domain.units.durations import HOUR_SECONDS, measured_duration
from trainer.protocol.gpu_models import GpuModel, models_of
from trainer.protocol.model_figures import ModelFigures, known_figures
from trainer.protocol.train_estimate import USABLE_MEMORY, RunFigures, estimate_on, training_memory
from trainer.protocol.train_options import TrainConfig, parse_options
from trainer.protocol.train_options.data import (
    DIGITS_CLASSES,
    DIGITS_SAMPLES,
    DIGITS_SHAPE,
    GPT2_VOCABULARY,
    PHOTO_SIZE,
)

REFERENCE_GPU: Final = "A100"
"""Of 80 GB: what hours are told of where the spec names no GPU. The formula's constants were
measured on it."""

_PHOTO_CLASSES: Final = 1_000
"""As ImageNet's: how many a folder holds is known where it lies, and they weigh next to nothing."""

_ESTIMATE_FORM: Final = "estimate: {hours: 2, gpu: V100}"

_HOURS_MIN: Final = 1 / 3_600
"""An estimate is of some work; its seconds are whole ones."""


@dataclass(frozen=True, slots=True)
class DescribedWork:
    """Work as a spec's `estimate` would say it, and what it was worked out from."""

    estimate: Estimate
    sentence: str


def trainer_memory_gb(spec: JobSpec) -> int:
    """GB that a GPU must have for one rank's share of a step, if the spec tells; else 0.

    The least that can work: a single sample at a time where the trainer may cut its share smaller
    (`on_oom: adapt`, recomputed activations), and nothing where ranks share the model (FSDP).
    """
    config = _config_of(spec)
    figures = None if config is None else _figures(config)
    if config is None or figures is None or config.parallel == "fsdp":
        return 0
    # An elastic gang may go on with its least machines, and each then has the most to hold.
    ranks = spec.nodes.least
    share = math.ceil(config.batch_size / ranks / config.accumulation)
    if config.on_oom == "adapt" or config.activation_checkpointing:
        share = 1
    needed = training_memory(_workload(config, figures, samples=0), share, ranks)
    return math.ceil(needed.total / USABLE_MEMORY / 2**30)


def described_work(spec: JobSpec) -> DescribedWork | None:
    """The whole run by the trainer's formula; None where the spec does not say enough.

    For one machine with the first GPU that the spec accepts, without interruptions and start-up,
    and with the pauses that the spec asks for after each step.
    Work beyond the most that an estimate can say is counted as that, and the sentence tells so.
    """
    config = _config_of(spec)
    figures = None if config is None else _figures(config)
    samples = None if config is None else _samples_of(config)
    if config is None or figures is None or samples is None:
        return None
    gpu, count = _gpu_of(spec.gpu_choices)
    found = estimate_on(_workload(config, figures, samples), gpu, count)
    machine = gpu_words(gpu.name, count, gpu.memory_gb)
    pauses = _pause_seconds(config, samples) / HOUR_SECONDS
    hours = found.hours + pauses
    counted = min(max(hours, _HOURS_MIN), ESTIMATE_HOURS_MAX)
    told = (
        f" with {measured_duration(config.step_delay_seconds)} of pause after each step"
        if pauses
        else ""
    )
    capped = f", of which {counted:,} hours are counted" if counted < hours else ""
    return DescribedWork(
        Estimate.model_validate(
            {"hours": counted, "gpu": str(GpuChoice(gpu.name, gpu.memory_gb, count))}
        ),
        f"the trainer's formula: {samples:,} samples of {config.model} ({_length(config, samples)})"
        f" in {config.precision} at {found.samples_per_second:,.0f} a second on {machine}{told}"
        f"{capped}",
    )


def _length(config: TrainConfig, samples: int) -> str:
    """Where the number of samples comes from: "2,000 steps of 64"."""
    if config.steps is not None or config.epochs is None:
        return f"{samples // config.batch_size:,} steps of {config.batch_size:,}"
    epochs = f"{config.epochs:,} epoch{'' if config.epochs == 1 else 's'}"
    return f"{epochs} of {samples // config.epochs:,} in batches of {config.batch_size:,}"


def pause_seconds(spec: JobSpec) -> float:
    """What the pauses take that a spec asks for after each step, on whatever machines it runs.

    0 where the spec does not tell how many steps there are. A command's own pauses are unknown.
    """
    config = _config_of(spec)
    samples = None if config is None else _samples_of(config)
    return 0.0 if config is None or samples is None else _pause_seconds(config, samples)


def _pause_seconds(config: TrainConfig, samples: int) -> float:
    return samples / config.batch_size * config.step_delay_seconds


def with_known_work(spec: JobSpec) -> tuple[JobSpec, str]:
    """The spec with an `estimate`, by the trainer's formula where it has none; and its source.

    Unchanged where neither the spec nor the formula tells how much work it is.
    """
    described = described_work(spec) if spec.estimate is None else None
    if described is None:
        return spec, "the spec's estimate"
    return spec.model_copy(update={"estimate": described.estimate}), described.sentence


def why_not_described(spec: JobSpec) -> str:
    """Why `described_work` is None for a spec, and what to add to it."""
    config = _config_of(spec)
    add = f"add `{_ESTIMATE_FORM}`, from a short run"
    if config is None:
        return f"Cannot estimate: the work of a `run` command is unknown; {add}."
    if _figures(config) is None:
        options = " with `model_options`" if config.model_options else ""
        return (
            f"Cannot estimate: the model {config.model}{options} has no cost formula; {add} or "
            "from `python -m trainer.training.estimate`."
        )
    return (
        f"Cannot estimate: the number of samples in {config.data} is unknown before training; "
        f"give `steps` in place of `epochs`, or {add}."
    )


def _config_of(spec: JobSpec) -> TrainConfig | None:
    config = spec.trainer_config()
    return None if config is None else _parsed(json.dumps(config, sort_keys=True))


# Every look for machines asks, and nearly always about the specs of the look before.
@functools.lru_cache(maxsize=256)
def _parsed(config: str) -> TrainConfig:
    return parse_options(json.loads(config))


def _workload(config: TrainConfig, figures: ModelFigures, samples: int) -> RunFigures:
    return RunFigures(
        figures=figures,
        batch_size=config.batch_size,
        samples=samples,
        precision=config.precision,
        optimizer=config.optimizer,
        ema=config.ema_decay is not None or config.swa_from is not None,
    )


def _figures(config: TrainConfig) -> ModelFigures | None:
    return None if config.model_options else _known(config.model, *_shape_of(config))


@functools.lru_cache(maxsize=256)
def _known(model: str, shape: tuple[int, ...], classes: int) -> ModelFigures | None:
    return known_figures(model, shape, classes)


def _shape_of(config: TrainConfig) -> tuple[tuple[int, ...], int]:
    """Shape of a sample and number of classes, as the data's layout will have it."""
    if config.data == "digits":
        return _resized(DIGITS_SHAPE, config.image_size), DIGITS_CLASSES
    if config.data == "synthetic":
        return _resized(config.synthetic_shape, config.image_size), config.synthetic_classes
    if config.model.startswith("gpt"):
        return (config.context_length,), config.vocabulary or GPT2_VOCABULARY
    size = config.image_size or PHOTO_SIZE
    return (config.channels, size, size), _PHOTO_CLASSES


def _resized(shape: tuple[int, ...], image_size: int | None) -> tuple[int, ...]:
    """As the trainer brings images to one size; windows of tokens stay as they are."""
    if len(shape) != 3 or image_size is None:
        return shape
    return (shape[0], image_size, image_size)


def _samples_of(config: TrainConfig) -> int | None:
    """Samples of the whole run; None where an epoch's size is known by the data alone."""
    if config.steps is not None:
        return config.steps * config.batch_size
    there = {"digits": DIGITS_SAMPLES, "synthetic": config.synthetic_samples}.get(config.data)
    if config.epochs is None or there is None:
        return None
    return config.epochs * (there * config.split[0] // sum(config.split))


def _gpu_of(choices: tuple[GpuChoice, ...]) -> tuple[GpuModel, int]:
    """The first one of the catalog that is asked for, else the reference."""
    for choice in choices:
        for gpu in () if choice.name is None else models_of(choice.name):
            if choice.memory_gb in (None, gpu.memory_gb):
                return gpu, choice.count
    return models_of(REFERENCE_GPU)[-1], 1
