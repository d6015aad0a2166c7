"""Two models for small images: quick to train on a CPU, with dropout."""

from __future__ import annotations

import math

from torch import nn

DROPOUT = 0.25


def cnn(shape: tuple[int, int, int], classes: int) -> nn.Module:
    """Two convolutions and a hidden layer: sized for 8 x 8 digits."""
    channels, height, width = shape
    return nn.Sequential(
        nn.Conv2d(channels, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(DROPOUT),
        nn.Linear(32 * (height // 2) * (width // 2), 64),
        nn.ReLU(),
        nn.Dropout(DROPOUT),
        nn.Linear(64, classes),
    )


def mlp(shape: tuple[int, ...], classes: int) -> nn.Module:
    """One hidden layer over the flattened sample, of any shape."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(math.prod(shape), 128),
        nn.ReLU(),
        nn.Dropout(DROPOUT),
        nn.Linear(128, classes),
    )
