"""A user's own model: `tests.training.models.plain_model:hidden_layer`, nothing random."""

from __future__ import annotations

from torch import nn


def hidden_layer(pixels: int = 64, classes: int = 10) -> nn.Module:
    """One hidden layer over the flattened image; by default for the digits."""
    return nn.Sequential(nn.Flatten(), nn.Linear(pixels, 64), nn.ReLU(), nn.Linear(64, classes))
