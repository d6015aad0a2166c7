"""What to do when a step does not fit into memory: how it is cut, and what needs how much.

The global batch and its samples stay what they are; only how many of them are in memory at once
changes, and whether activations are kept or computed again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from trainer.training.config import TrainConfig


@dataclass(frozen=True)
class MemoryPlan:
    """Equal on all ranks, and saved with a checkpoint.

    ``micro_batch_most``: samples in memory at once on a rank; None: as the configuration cuts them.
    ``recompute``: activation checkpointing was turned on for want of memory. ``least``: samples
    that a part needs at least; batch norm has no statistics of a single one.
    """

    micro_batch_most: int | None = None
    recompute: bool = False
    least: int = 1

    def accumulation(self, config: TrainConfig, world_size: int) -> int:
        """Parts that a rank's share of the batch is computed in."""
        if self.micro_batch_most is None:
            return config.accumulation
        wanted = math.ceil(config.batch_size / world_size / self.micro_batch_most)
        possible = config.batch_size // world_size // self.least
        return max(config.accumulation, min(wanted, possible))

    def micro_batch(self, config: TrainConfig, world_size: int) -> int:
        """The most samples that are in memory at once."""
        share = math.ceil(config.batch_size / world_size)
        return math.ceil(share / self.accumulation(config, world_size))

    def smaller(
        self, config: TrainConfig, world_size: int, can_recompute: bool
    ) -> MemoryPlan | None:
        """The next thing to try: half the samples at once, as often as that goes; then activations
        are computed again, and the samples begin where the configuration has them. None: nothing
        is left.
        """
        half = math.ceil(self.micro_batch(config, world_size) / 2)
        halved = replace(self, micro_batch_most=half)
        if halved.accumulation(config, world_size) > self.accumulation(config, world_size):
            return halved
        if can_recompute and not self.recompute:
            return replace(self, micro_batch_most=None, recompute=True)
        return None


def explain(
    config: TrainConfig,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    micro_batch: int,
    device: torch.device,
) -> str:
    """One line: what needed how much at the peak, and what would make it less."""
    weights = _bytes([*model.parameters(), *model.buffers()])
    gradients = _bytes([each for each in model.parameters() if each.requires_grad])
    states = [value for state in optimizer.state.values() for value in state.values()]
    held = _bytes([each for each in states if isinstance(each, Tensor)])
    needs = {"weights": weights, "gradients": gradients, "optimizer": held}
    if device.type == "cuda":
        peak = torch.cuda.max_memory_allocated(device)
        needs["activations"] = max(0, peak - sum(needs.values()))
        total = torch.cuda.get_device_properties(device).total_memory
        room = f" of {_shown(total)}"
    else:
        room = ""
    listed = ", ".join(f"{name} {_shown(size)}" for name, size in needs.items())
    return (
        f"a micro-batch of {micro_batch} samples does not fit into memory: {listed}{room};"
        f" {'; '.join(_advice(config, micro_batch))}"
    )


def _advice(config: TrainConfig, micro_batch: int) -> list[str]:
    advice = []
    if micro_batch > 1:
        if config.on_oom == "fail":
            advice.append("set on_oom: adapt")
        advice.append(f"raise accumulation to {config.accumulation * 2}")
    if not config.activation_checkpointing:
        advice.append("set activation_checkpointing: true")
    if config.precision in ("fp32", "tf32"):
        advice.append("use precision: bf16")
    if config.parallel == "ddp":
        advice.append("share the model with parallel: fsdp")
    return advice or ["use a GPU with more memory"]


def _bytes(tensors: list[Tensor]) -> int:
    """What this rank holds of them."""
    parts = [each.to_local() if hasattr(each, "to_local") else each for each in tensors]
    return sum(each.numel() * each.element_size() for each in parts)


def _shown(size: float) -> str:
    return f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"
