"""From the options to a torch optimizer, and the clipping of gradients before its step."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from trainer.training.config import TrainConfig
from trainer.training.training_errors import ConfigError

# Biases and the scales of norms have one axis.
_DECAYED_AXES = 2


def make_optimizer(config: TrainConfig, model: nn.Module) -> torch.optim.Optimizer:
    """AdamW or SGD, at the peak learning rate of the schedule.

    Raises ``ConfigError`` for the one kernel that PyTorch does not have: fused SGD of a sharded
    model.
    """
    wanted = config.optimizer_kernel
    if config.optimizer == "sgd" and any(
        hasattr(each, "placements") for each in model.parameters()
    ):
        if wanted == "fused":
            raise ConfigError(
                "optimizer_kernel: PyTorch has no fused sgd for parallel: fsdp; use auto or foreach"
            )
        wanted = "foreach" if wanted == "auto" else wanted
    kernel: dict[str, Any] = {
        "auto": {"fused": True},
        "fused": {"fused": True},
        "foreach": {"foreach": True},
        "loop": {"foreach": False},
    }[wanted]
    groups = parameter_groups(config, model)
    rate = config.peak_learning_rate
    if config.optimizer == "sgd":
        return torch.optim.SGD(
            groups, lr=rate, momentum=config.momentum, nesterov=config.nesterov, **kernel
        )
    beta_mean, beta_square = config.betas
    return torch.optim.AdamW(groups, lr=rate, betas=(beta_mean, beta_square), **kernel)


def parameter_groups(config: TrainConfig, model: nn.Module) -> list[dict[str, Any]]:
    """One group, or two when biases and norms are not to decay."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if config.decay_all:
        return [{"params": parameters, "weight_decay": config.weight_decay}]
    decayed = [each for each in parameters if each.ndim >= _DECAYED_AXES]
    kept = [each for each in parameters if each.ndim < _DECAYED_AXES]
    groups = [
        {"params": decayed, "weight_decay": config.weight_decay},
        {"params": kept, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def clip_gradients(model: nn.Module, most: float) -> Tensor:
    """Scales all gradients so that their norm together, over all shards, is at most ``most``.

    Returns the norm before, a scalar. Gradients must be unscaled. Nothing is read by the processor.
    """
    gradients = [each.grad for each in model.parameters() if each.grad is not None]
    norm = torch.nn.utils.get_total_norm(gradients)
    if hasattr(norm, "full_tensor"):
        norm = norm.full_tensor()  # of shards: the sum over all ranks
    torch.nn.utils.clip_grads_with_norm_(model.parameters(), most, norm)
    return norm
