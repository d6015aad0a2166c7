"""Options of the optimizer, its schedule, and the averages of the weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from trainer.protocol.train_options.option import OptionError, option
from trainer.protocol.train_options.section import Section

DEFAULT_LEARNING_RATES: Final = {"adamw": 0.002, "sgd": 0.05}


@dataclass(frozen=True, kw_only=True)
class OptimizationOptions(Section):
    """How the weights are moved."""

    optimizer: str = option(
        "adamw", choices=tuple(DEFAULT_LEARNING_RATES), identity=True, about="AdamW or SGD"
    )
    learning_rate: float | None = option(
        None, low=1e-12, high=1_000, about="At the end of warm-up; not set: 0.002 adamw, 0.05 sgd"
    )
    schedule: str = option(
        "cosine",
        choices=("cosine", "step", "linear", "constant"),
        about="How the learning rate falls after warm-up",
    )
    warmup_steps: int = option(
        20, low=0, high=1_000_000, about="Steps in which the learning rate rises"
    )
    final_learning_rate_ratio: float = option(
        0.0, low=0, high=1, about="Where cosine and linear end, as a fraction of the learning rate"
    )
    schedule_drops: tuple[float, ...] = option(
        (0.5, 0.75),
        low=0,
        high=1,
        about="For `step`: fractions of the run after which the rate drops",
    )
    schedule_factor: float = option(0.1, low=1e-6, high=1, about="For `step`: factor of each drop")
    weight_decay: float = option(0.01, low=0, high=10, about="Weight decay")
    decay_all: bool = option(
        True, about="Decay every parameter; false: leave out biases and norms (fewer than 2 axes)"
    )
    momentum: float = option(0.9, low=0, high=1, about="For sgd")
    nesterov: bool = option(False, about="For sgd: look ahead along the momentum")
    betas: tuple[float, ...] = option(
        (0.9, 0.999), low=0, high=1, length=2, about="For adamw: decay rates of the two moments"
    )
    optimizer_kernel: str = option(
        "auto",
        choices=("auto", "fused", "foreach", "loop"),
        about="How an optimizer step is computed; auto: fused (foreach for sgd with fsdp)",
    )
    clip_norm: float | None = option(
        None, low=1e-9, high=1e9, about="Largest norm of all gradients together"
    )
    label_smoothing: float = option(
        0.0, low=0, high=1, about="Fraction of each label that is spread over all classes"
    )
    ema_decay: float | None = option(
        None, low=0, high=1, about="Keep an exponential average of the weights, and evaluate that"
    )
    swa_from: float | None = option(
        None,
        low=0,
        high=1,
        about="Average the weights evenly after this fraction of the run; that is the result",
    )
    swa_every_steps: int = option(
        100, low=1, high=1_000_000_000, about="Steps between two averaged states of the weights"
    )
    swa_learning_rate: float | None = option(
        None, low=1e-12, high=1_000, about="Constant rate while averaging; not set: the schedule's"
    )
    target_metric: str | None = option(
        None,
        pattern=r"[a-z_]{1,64}",
        how="a name like validation_accuracy",
        about="Metric of target_value",
    )
    target_value: float | None = option(
        None, low=-1e12, high=1e12, about="End the run when an evaluation reaches this value"
    )

    @property
    def peak_learning_rate(self) -> float:
        """The rate at the end of warm-up: the configured one, else the optimizer's default."""
        if self.learning_rate is not None:
            return self.learning_rate
        return DEFAULT_LEARNING_RATES[self.optimizer]

    def check(self) -> None:
        """Nothing that contradicts itself. Raises ``OptionError``."""
        if self.nesterov and not self.momentum:
            raise OptionError("nesterov", "needs a momentum above 0")
        if max(self.betas) >= 1:
            raise OptionError("betas", "must be below 1")
        if list(self.schedule_drops) != sorted(self.schedule_drops):
            raise OptionError("schedule_drops", "must rise, like [0.5, 0.75]")
        if self.ema_decay is not None and self.swa_from is not None:
            raise OptionError("ema_decay", "set at most one of ema_decay and swa_from")
        if (self.target_metric is None) != (self.target_value is None):
            raise OptionError("target_value", "set both target_metric and target_value, or neither")
