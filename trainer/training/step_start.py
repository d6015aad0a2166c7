"""The state that a step changes before its optimizer does: to take half a step back exactly.

Micro-batches draw random numbers and move running statistics. A step that is given up on, for a
notice or for want of memory, must leave neither behind.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from trainer.training import randomness


class StepStart:
    """Random state and buffers as they were when this was made; gradients are the caller's."""

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        self._model = model
        self._device = device
        self._random: Mapping[str, Tensor] = randomness.capture(device)
        self._buffers = [buffer.clone() for buffer in model.buffers()]

    def put_back(self) -> None:
        """Undoes what the micro-batches since then have changed."""
        randomness.restore(self._random, self._device)
        with torch.no_grad():
            for buffer, saved in zip(self._model.buffers(), self._buffers, strict=True):
                buffer.copy_(saved)
