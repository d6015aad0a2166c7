"""The learning rate of every step: a pure function, so a checkpoint holds no schedule."""

from __future__ import annotations

import math

from trainer.training.config import TrainConfig


def learning_rate_at(step: int, total_steps: int, config: TrainConfig) -> float:
    """Linear warm-up, then half a cosine down to zero. ``step`` counts finished steps.

    Source: Loshchilov and Hutter, SGDR: Stochastic Gradient Descent with Warm Restarts (2017),
    equation 5, with one period.
    """
    warmup = min(config.warmup_steps, total_steps)
    if step < warmup:
        return config.peak_learning_rate * (step + 1) / warmup
    done = (step - warmup) / max(1, total_steps - warmup)
    return config.peak_learning_rate * 0.5 * (1.0 + math.cos(math.pi * done))
