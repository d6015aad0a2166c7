"""The learning rate of every step: a pure function, so a checkpoint holds no schedule."""

from __future__ import annotations

import math

from trainer.training.config import TrainConfig


def learning_rate_at(step: int, total_steps: int, config: TrainConfig) -> float:
    """Linear warm-up to the peak, then the schedule's way down. ``step`` counts finished steps.

    The cosine is equation 5, with one period, of Loshchilov and Hutter, SGDR: Stochastic Gradient
    Descent with Warm Restarts (2017). While weights are averaged, ``swa_learning_rate`` rules.
    """
    warmup = min(config.warmup_steps, total_steps)
    if step < warmup:
        return config.peak_learning_rate * (step + 1) / warmup
    if averaging_has_begun(step, total_steps, config) and config.swa_learning_rate is not None:
        return config.swa_learning_rate
    done = (step - warmup) / max(1, total_steps - warmup)
    return config.peak_learning_rate * _part_of_peak(done, config)


def averaging_has_begun(step: int, total_steps: int, config: TrainConfig) -> bool:
    """Whether the weights after ``step`` finished steps take part in the even average."""
    return config.swa_from is not None and step >= config.swa_from * total_steps


def _part_of_peak(done: float, config: TrainConfig) -> float:
    """``done``: 0 at the end of warm-up, 1 at the end of the run."""
    if config.schedule == "constant":
        return 1.0
    if config.schedule == "step":
        return config.schedule_factor ** sum(done >= drop for drop in config.schedule_drops)
    left = 1.0 - done if config.schedule == "linear" else 0.5 * (1.0 + math.cos(math.pi * done))
    end = config.final_learning_rate_ratio
    return left if end == 0 else end + (1.0 - end) * left
