"""The model and its optimizer on one rank: one optimizer step, scoring, and their saved state."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from trainer.training import randomness
from trainer.training.config import TrainConfig
from trainer.training.data import DataSet, Indices, Part
from trainer.training.distributed import Gang
from trainer.training.models import build_model
from trainer.training.precision import autocast, gradient_scaler

SGD_MOMENTUM = 0.9
EVAL_BATCH = 256


class Learner:
    """What is learned. All ranks hold equal weights after every step."""

    def __init__(self, config: TrainConfig, gang: Gang, data: DataSet) -> None:
        self.config = config
        self.gang = gang
        torch.manual_seed(config.seed)
        self.model = build_model(config.model, data.shape, data.classes).to(gang.device)
        self.parallel = gang.data_parallel(self.model)
        self.optimizer = make_optimizer(config, self.model)
        self.scaler = gradient_scaler(config.precision, gang.device)
        self._settle_gradient_buckets(data)
        randomness.seed_rank(config.seed, 0, gang.rank)

    def step(self, part: Part, batch: Indices, learning_rate: float) -> float:
        """One optimizer step on this rank's share of the global ``batch``.

        Returns the summed loss of that share. Each sample's loss is weighted by the global batch,
        so the step is the same mean whatever the ranks and however uneven the shares.
        """
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        share = np.array_split(batch, self.gang.world_size)[self.gang.rank]
        micro_batches = np.array_split(share, self.config.accumulation)
        loss_sum = 0.0
        for number, micro_batch in enumerate(micro_batches, start=1):
            last = number == len(micro_batches)
            # Gradients travel once a step, in the last backward pass.
            with contextlib.nullcontext() if last else self.parallel.no_sync():
                loss = self._loss_sum(part, micro_batch)
                weight = self.gang.world_size / self.config.batch_size
                self.scaler.scale(loss * weight).backward()  # type: ignore[no-untyped-call]
            loss_sum += loss.item()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        return loss_sum

    def score(self, part: Part, interrupted: Callable[[], bool]) -> float | None:
        """Accuracy over ``part``, shared by all ranks; None if ``interrupted`` said so.

        ``interrupted`` is a collective, called by every rank after each of equally many batches.
        """
        shares = np.array_split(np.arange(len(part)), self.gang.world_size)
        share = shares[self.gang.rank]
        correct = 0
        self.gang.share_buffers(self.model)
        self.model.eval()
        try:
            for first in range(0, max(len(each) for each in shares), EVAL_BATCH):
                indices = share[first : first + EVAL_BATCH]
                with torch.no_grad(), autocast(self.config.precision, self.gang.device):
                    if len(indices) > 0:
                        images, labels = self._tensors(part, indices)
                        correct += int((self.model(images).argmax(1) == labels).sum())
                if interrupted():
                    return None
        finally:
            self.model.train()
        return self.gang.sum(correct)[0] / len(part)

    def training_state(self) -> dict[str, Any]:
        """Optimizer and gradient scaler; the weights are saved beside it, in a file of theirs."""
        return {"optimizer": self.optimizer.state_dict(), "scaler": self.scaler.state_dict()}

    def load(self, weights: dict[str, Tensor], state: dict[str, Any]) -> None:
        """Puts back weights and state; torch moves both to this rank's device."""
        self.model.load_state_dict(weights)
        self.optimizer.load_state_dict(state["optimizer"])
        self.scaler.load_state_dict(state["scaler"])

    def _settle_gradient_buckets(self, data: DataSet) -> None:
        """Runs one throw-away backward pass; weights and buffers stay as they are.

        After its first backward pass DistributedDataParallel regroups the gradients once, and with
        three or more ranks the grouping decides in which order they are added up. Without this a
        resumed run would add its first step in another order than the uninterrupted one.
        """
        buffers = [buffer.clone() for buffer in self.model.buffers()]
        nothing = Part(np.zeros((2, *data.shape), np.float32), np.zeros(2, np.int64))
        self._loss_sum(nothing, np.arange(2)).backward()  # type: ignore[no-untyped-call]
        self.optimizer.zero_grad(set_to_none=True)
        for buffer, saved in zip(self.model.buffers(), buffers, strict=True):
            buffer.copy_(saved)

    def _loss_sum(self, part: Part, indices: Indices) -> Tensor:
        images, labels = self._tensors(part, indices)
        with autocast(self.config.precision, self.gang.device):
            return functional.cross_entropy(self.parallel(images), labels, reduction="sum")

    def _tensors(self, part: Part, indices: Indices) -> tuple[Tensor, Tensor]:
        images = torch.from_numpy(part.images[indices]).to(self.gang.device)
        return images, torch.from_numpy(part.labels[indices]).to(self.gang.device)


def make_optimizer(config: TrainConfig, model: nn.Module) -> torch.optim.Optimizer:
    """AdamW or SGD with momentum, at the peak learning rate of the schedule."""
    rate, decay = config.peak_learning_rate, config.weight_decay
    if config.optimizer == "sgd":
        return torch.optim.SGD(
            model.parameters(), lr=rate, momentum=SGD_MOMENTUM, weight_decay=decay
        )
    return torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=decay)
