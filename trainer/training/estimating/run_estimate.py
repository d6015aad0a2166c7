"""A run put together with the kinds of GPU it could run on: closed form, counts, a calibration.

Not here: the rules and constants (``trainer/protocol/train_estimate.py``), the command line
(``estimate.py``) and the words (``estimate_report.py``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from torch import nn

from trainer.protocol.gpu_models import GpuModel
from trainer.protocol.model_figures import (
    CNN_PASSES,
    TRANSFORMER_PASSES,
    Family,
    ModelFigures,
    known_figures,
)
from trainer.protocol.train_estimate import GpuEstimate, RunFigures, estimate_on, ranked, scaled
from trainer.training.config import TrainConfig
from trainer.training.data import DataSet
from trainer.training.estimating.step_measurement import StepMeasurement
from trainer.training.kernels.flops import count_for
from trainer.training.models import build_model
from trainer.training.training_errors import ConfigError

# Each number that a convolution writes is kept twice: before the normalisation and after the ReLU.
_CNN_TRAFFIC_OF_KEPT = CNN_PASSES / 2


@dataclass(frozen=True)
class EstimateReport:
    """Everything that is printed. ``measured`` is on this machine, ``here`` what was expected of
    its GPU; both None without a calibration.
    """

    config: TrainConfig
    work: RunFigures
    train_samples: int
    total_steps: int
    gpus: list[GpuEstimate]
    measured: StepMeasurement | None = None
    here: GpuEstimate | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain values, with the properties that are worth having."""
        figures = self.work.figures
        return {
            "model": {**asdict(figures), "training_flops": figures.training_flops},
            "train_samples": self.train_samples,
            "total_steps": self.total_steps,
            "samples": self.work.samples,
            "total_flops": self.work.total_flops,
            "gpus": [{**asdict(one), "memory_bytes": one.memory.total} for one in self.gpus],
            "measured": None
            if self.measured is None
            else {**asdict(self.measured), "device": str(self.measured.device)},
        }


def estimate(
    config: TrainConfig,
    data: DataSet,
    train_samples: int,
    gpus: Sequence[tuple[GpuModel, int]],
    prices: Mapping[str, float],
    measured: StepMeasurement | None = None,
    gpu_here: GpuModel | None = None,
) -> EstimateReport:
    """Puts the run together; ``data`` is looked at for its shape and classes alone.

    ``measured`` was done on this machine, whose GPU is ``gpu_here``: what it says of that GPU is
    carried over to all others. None for a machine whose GPU is not known, or that has none.
    """
    total_steps = config.total_steps(train_samples)
    figures = figures_of(config, data)
    work = RunFigures(
        figures=figures,
        batch_size=config.batch_size,
        samples=total_steps * config.batch_size,
        precision=config.precision,
        optimizer=config.optimizer,
        ema=config.ema_decay is not None or config.swa_from is not None,
        decodes_images=data.photos,
    )
    counts = sorted({count for _, count in gpus})
    found = [
        one
        for count in counts
        for one in ranked(work, count, prices, [gpu for gpu, each in gpus if each == count])
    ]
    found.sort(key=lambda one: (one.usd is None, one.usd or 0.0, one.hours))
    here = None
    if measured is not None and gpu_here is not None:
        here = estimate_on(replace(work, batch_size=measured.micro_batch), gpu_here)
        found = [_as_measured(one, measured, here) for one in found]
    return EstimateReport(config, work, train_samples, total_steps, found, measured, here)


def figures_of(config: TrainConfig, data: DataSet) -> ModelFigures:
    """Known in closed form for the own models, counted on one pass without memory for others.

    Raises ``ConfigError`` for a model that cannot be counted.
    """
    known = None if config.model_options else known_figures(config.model, data.shape, data.classes)
    if known is not None:
        return known
    model = build_model(config.model, data.shape, data.classes, config.model_options)
    count = count_for(model, data.shape)
    if count is None or count.activation_bytes is None:
        raise ConfigError(
            f"model: {config.model} cannot be counted, because its shapes depend on values;"
            " use --calibrate on the GPU that is meant"
        )
    kept = count.activation_bytes / 4
    cnn = any(isinstance(module, nn.modules.conv._ConvNd) for module in model.modules())
    attention = any(isinstance(module, nn.LayerNorm) for module in model.modules())
    family: Family = "cnn" if cnn and not attention else "transformer"
    passes = _CNN_TRAFFIC_OF_KEPT if family == "cnn" else TRANSFORMER_PASSES
    return ModelFigures(
        name=config.model,
        family=family,
        parameters=count.parameters,
        forward_flops=count.forward_flops,
        activation_elements=kept,
        traffic_elements=passes * kept,
        source="counted on one pass",
    )


def _as_measured(one: GpuEstimate, measured: StepMeasurement, here: GpuEstimate) -> GpuEstimate:
    """The estimate moved by how much the measurement here differs from what was expected here."""
    per_second = scaled(measured.samples_per_second, here, one)
    factor = per_second / one.samples_per_second
    return replace(
        one,
        samples_per_second=per_second,
        step_seconds=one.step_seconds / factor,
        mfu=one.mfu * factor,
        hours=one.hours / factor,
        usd=None if one.usd is None else one.usd / factor,
    )
