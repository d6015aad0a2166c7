"""Averages of the weights along the run: exponential (EMA), or even over its last part (SWA).

EMA: the average is what evaluations score; the model's own weights go on being trained.
SWA: at the end of the run the average becomes the model's weights. Source: Izmailov et al.,
Averaging Weights Leads to Wider Optima and Better Generalization (2018), algorithm 1.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from trainer.training.config import TrainConfig
from trainer.training.loop.learning_rate import averaging_has_begun


class Averages:
    """The average of a model's parameters, kept beside it, each tensor placed like its parameter.

    ``count`` is how many weights the even average holds; ``adopted``: they are the model's by now.
    """

    def __init__(self, config: TrainConfig, model: nn.Module) -> None:
        self._config = config
        self._model = model
        self._tensors = {
            name: parameter.detach().clone() for name, parameter in model.named_parameters()
        }
        self.count = 0
        self.adopted = False

    @torch.no_grad()
    def after_step(self, step: int, total_steps: int) -> None:
        """Takes in the weights after ``step`` finished steps, where it is their turn."""
        if self._config.ema_decay is not None:
            # The first ones count more, so that the start does not linger.
            decay = min(self._config.ema_decay, step / (step + 9))
            self._move(1.0 - decay)
        elif averaging_has_begun(step, total_steps, self._config) and (
            step % self._config.swa_every_steps == 0 or step == total_steps
        ):
            self.count += 1
            self._move(1.0 / self.count)

    @property
    def are_scored(self) -> bool:
        """Whether evaluations should look at the average."""
        return self._config.ema_decay is not None

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """The model has the average for its weights until the end of the block."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    @torch.no_grad()
    def adopt(self) -> None:
        """Makes the even average the model's weights, for good. Its statistics are stale then."""
        if self.count > 0 and not self.adopted:
            torch._foreach_copy_(_locals(self._parameters()), _locals(self._tensors.values()))
            self.adopted = True

    def state(self) -> dict[str, Any]:
        """Tensors by the name of their parameter, and plain values."""
        return {"tensors": self._tensors, "count": self.count, "adopted": self.adopted}

    @torch.no_grad()
    def load(self, state: dict[str, Any]) -> None:
        """Puts back what ``state`` gave; the tensors are already placed like the parameters."""
        torch._foreach_copy_(
            _locals(self._tensors.values()),
            _locals(state["tensors"][name] for name in self._tensors),
        )
        self.count, self.adopted = state["count"], state["adopted"]

    @torch.no_grad()
    def begin_anew(self) -> None:
        """From the model's weights as they are now, as if nothing had been averaged before."""
        torch._foreach_copy_(_locals(self._tensors.values()), _locals(self._parameters()))

    def _move(self, part: float) -> None:
        torch._foreach_lerp_(_locals(self._tensors.values()), _locals(self._parameters()), part)

    @torch.no_grad()
    def _exchange(self) -> None:
        mine, theirs = _locals(self._tensors.values()), _locals(self._parameters())
        kept = [each.clone() for each in theirs]
        torch._foreach_copy_(theirs, mine)
        torch._foreach_copy_(mine, kept)

    def _parameters(self) -> list[Tensor]:
        return [parameter.detach() for parameter in self._model.parameters()]


def make_averages(config: TrainConfig, model: nn.Module) -> Averages | None:
    """None when no average was asked for."""
    wanted = config.ema_decay is not None or config.swa_from is not None
    return Averages(config, model) if wanted else None


def batch_norms(model: nn.Module) -> list[nn.modules.batchnorm._NormBase]:
    """The layers whose statistics belong to the weights they were taken with."""
    return [
        module
        for module in model.modules()
        if isinstance(module, nn.modules.batchnorm._NormBase) and module.track_running_stats
    ]


@contextlib.contextmanager
def statistics_anew(model: nn.Module) -> Iterator[None]:
    """Inside, forward passes in training mode make new statistics, all batches counted alike."""
    layers = batch_norms(model)
    momenta = [layer.momentum for layer in layers]
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None
    try:
        yield
    finally:
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum


def _locals(tensors: Any) -> list[Tensor]:
    """The part of each tensor that this rank holds; a whole tensor is its own part."""
    return [each.to_local() if hasattr(each, "to_local") else each for each in tensors]
