"""Models of a user's own for the training tests, named as ``tests.training.own_models:NAME``."""

from __future__ import annotations

import functools

import torch
from torch import Tensor, nn


class Stack(nn.Module):
    """Blocks with a norm and dropout, as memory-saving techniques meet them; ``plain`` ones have
    neither, so that any number of ranks computes the same."""

    def __init__(
        self, input_shape: tuple[int, int, int], num_classes: int, plain: bool = False
    ) -> None:
        super().__init__()
        channels, height, width = input_shape
        self.first = nn.Linear(channels * height * width, 32)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Linear(32, 32),
                nn.LayerNorm(32) if plain else nn.BatchNorm1d(32),
                nn.ReLU(),
                nn.Dropout(0.0 if plain else 0.2),
            )
            for _ in range(3)
        )
        self.last = nn.Linear(32, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.first(images.flatten(1))
        for block in self.blocks:
            hidden = hidden + block(hidden)
        scores: Tensor = self.last(hidden)
        return scores


class Hungry(Stack):
    """Runs out of memory with more than ``most`` samples at once, ``recomputed_most`` when its
    blocks are recomputed. Of several ranks only ``on_rank`` is short."""

    def __init__(
        self,
        input_shape: tuple[int, int, int],
        num_classes: int,
        most: int,
        recomputed_most: int = 0,
        on_rank: int = 0,
    ) -> None:
        super().__init__(input_shape, num_classes)
        self._most = most
        self._recomputed_most = recomputed_most
        here = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
        self._is_short = here == on_rank

    def forward(self, images: Tensor) -> Tensor:
        scores = super().forward(images)
        recomputed = isinstance(self.blocks[0].forward, functools.partial)
        most = self._recomputed_most if recomputed else self._most
        if self.training and torch.is_grad_enabled() and self._is_short and len(images) > most:
            raise torch.OutOfMemoryError(f"CUDA out of memory with {len(images)} samples")
        return scores
