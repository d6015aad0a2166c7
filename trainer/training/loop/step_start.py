"""The state that a step changes before its optimizer does: to take half a step back exactly.

Micro-batches draw random numbers, move running statistics and whatever else modules keep. A step
that is given up on, for a notice or for want of memory, must leave nothing of it behind.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from trainer.training.loop import module_state, randomness


class StepStart:
    """Random state, buffers and extra states as they were when this was made; gradients are the
    caller's.
    """

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        self._model = model
        self._device = device
        self._random: Mapping[str, Tensor] = randomness.capture(device)
        self._held = module_state.capture(model)

    def put_back(self) -> None:
        """Undoes what the micro-batches since then have changed."""
        randomness.restore(self._random, self._device)
        module_state.put_back(self._model, self._held)
