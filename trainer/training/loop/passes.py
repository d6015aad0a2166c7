"""The passes of one step on one rank: forward and backward, part by part, agreed on by the ranks.

Lives here: number formats, loss, short memory, and stopping between two parts. Not here: what a
step does with the gradients (``learner.py``), and how they reach the other ranks
(``shared_model.py``).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from trainer.training.config import TrainConfig
from trainer.training.data import DataSet
from trainer.training.data.loading.batches import MicroBatch, zero_batch
from trainer.training.gang.distributed import Gang
from trainer.training.gang.shared_model import SharedModel
from trainer.training.kernels.number_formats import autocast, autocast_type
from trainer.training.loop.memory_plan import explain
from trainer.training.loop.objective import loss_sum_of
from trainer.training.training_errors import is_out_of_memory

StopAsked = Callable[[], bool]
_IMAGE_AXES = 4


def never() -> bool:
    """Nobody asks for a stop."""
    return False


class Passes:
    """The passes of ``shared``; ``call`` is its forward pass, compiled or not."""

    def __init__(
        self,
        config: TrainConfig,
        gang: Gang,
        data: DataSet,
        shared: SharedModel,
        call: Callable[..., Tensor],
        optimizer: torch.optim.Optimizer,
        scaler: torch.amp.GradScaler,
        least: int,
    ) -> None:
        """``optimizer`` is only looked at, to explain a lack of memory. ``least``: samples that a
        pass needs at least.
        """
        self._config = config
        self._gang = gang
        self._data = data
        self._shared = shared
        self._call = call
        self._optimizer = optimizer
        self._scaler = scaler
        self._least = least
        # Looked at in every step.
        self._adapts = config.on_oom == "adapt"
        self._is_fp32 = autocast_type(config.precision) is None
        self._smoothing = config.label_smoothing
        self._is_channels_last = wants_channels_last(config, gang.device)
        # DistributedDataParallel and FSDP average over the ranks; the loss is a sum over samples.
        self._weight = torch.tensor(gang.world_size / config.batch_size, device=gang.device)

    def run(
        self, micro_batches: list[MicroBatch], stop_asked: StopAsked = never
    ) -> tuple[Tensor | None, str]:
        """The summed loss; or None, and why memory was short if it was. Both alike on all ranks
        where ``on_oom`` is adapt.
        """
        total: Tensor | None = None
        self._shared.begin_step()
        for number, batch in enumerate(micro_batches, start=1):
            last = number == len(micro_batches)
            loss, problem = self._try_one(batch, last)
            if problem and not self._adapts:
                return None, problem
            # What is agreed on here costs nothing where there is one rank, and one part.
            if not last or self._adapts:
                self._shared.waits.begin()
                stops, lacking = self._gang.sum(not last and stop_asked(), bool(problem))
                self._shared.waits.end()
                if lacking > 0:
                    return None, problem or "another rank is out of memory"
                if stops > 0:
                    return None, ""
            if loss is not None:
                total = loss if total is None else total.double() + loss.double()
        return total, ""

    def _try_one(self, batch: MicroBatch, last: bool) -> tuple[Tensor | None, str]:
        """The summed loss of one micro-batch, None if it is empty; why memory was short if so."""
        if len(batch) == 0:
            return None, ""
        try:
            with self._shared.part_of_step(last):
                return self._both(batch, last).detach(), ""
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            count, device = len(batch), self._gang.device
            problem = explain(self._config, self._shared.model, self._optimizer, count, device)
        # Only here, with the error's frames gone, can their tensors be given back.
        if device.type == "cuda":
            torch.cuda.empty_cache()
        if self._adapts:
            small = zero_batch(self._data, self._least, device)
            self._shared.make_up(lambda: self._both(small, last))
        return None, problem

    def _both(self, batch: MicroBatch, last: bool) -> Tensor:
        """Forward and backward; the summed loss."""
        loss = self._loss_sum(batch)
        if last:
            self._shared.backward_begins(loss)
        if self._scaler.is_enabled():
            scaled = self._scaler.scale(loss * self._weight)
            scaled.backward()  # type: ignore[no-untyped-call]
        else:
            loss.backward(self._weight)  # type: ignore[no-untyped-call]
        if last:
            self._shared.backward_ended()
        return loss

    def _loss_sum(self, batch: MicroBatch) -> Tensor:
        inputs = batch.inputs
        if self._is_channels_last and inputs.ndim == _IMAGE_AXES:
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        if self._is_fp32:  # spares entering a context that does nothing
            return loss_sum_of(self._call(inputs), batch.labels, self._smoothing)
        with autocast(self._config.precision, self._gang.device):
            return loss_sum_of(self._call(inputs), batch.labels, self._smoothing)


def placed(model: nn.Module, config: TrainConfig, device: torch.device) -> nn.Module:
    """The model on the device, its images in the order of memory that they will come in."""
    model = model.to(device)
    if wants_channels_last(config, device):
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model


def wants_channels_last(config: TrainConfig, device: torch.device) -> bool:
    """Whether images have their channels last in memory."""
    wanted = config.channels_last
    return wanted == "on" or (wanted == "auto" and device.type == "cuda")
