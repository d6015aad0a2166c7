"""How the ranks share a model: every one a whole copy, or each its part of every block.

Copies: DistributedDataParallel averages the gradients while the last backward pass of a step still
runs. Parts: FSDP2 gathers each block when it is needed. With ``on_oom: adapt`` copies are averaged
after the passes instead: a rank that runs out of memory in the middle of a pass could not keep up
its side of what the others are averaging. Parts cannot wait: such a rank makes up for the rest of
its pass (``sharding.py``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from trainer.training.config import TrainConfig
from trainer.training.gang.distributed import Gang
from trainer.training.gang.sharding import ShardedPasses
from trainer.training.gang.waiting import Waits
from trainer.training.training_errors import ConfigError


class SharedModel:
    """``call`` runs the model's forward pass; the ranks call it equally often.

    ``sharded``: parameters are DTensors, and a pass needs all ranks. ``waits``: how long this rank
    waited for what the others computed.
    """

    def __init__(self, model: nn.Module, config: TrainConfig, gang: Gang) -> None:
        self.model = model
        self._gang = gang
        self._ddp: DistributedDataParallel | None = None
        self._parts: ShardedPasses | None = None
        self.waits = Waits(gang.device)
        self.call: Callable[..., Tensor] = model
        alone = gang.world_size == 1
        self.sharded = config.parallel == "fsdp" and not alone
        adapts = config.on_oom == "adapt"
        self._late = adapts and not alone and not self.sharded
        if self.sharded:
            self._parts = ShardedPasses(model, gang, self.waits, retries=adapts)
        elif self._late:
            self._send_from_rank_0([*model.parameters(), *model.buffers()])
        elif not alone:
            self._ddp = DistributedDataParallel(
                model,
                device_ids=[gang.device.index] if gang.device.type == "cuda" else None,
                find_unused_parameters=config.find_unused_parameters,
            )
            self.call = self._ddp
        self._must_be_used: list[tuple[str, nn.Parameter]] = []
        if self._ddp is not None and not config.find_unused_parameters:
            named = model.named_parameters()
            self._must_be_used = [(name, each) for name, each in named if each.requires_grad]
        # Of parts on a CPU each exchange is timed; on a GPU only what is left when all is computed.
        on_gpu = gang.device.type == "cuda"
        self._watches = self._ddp is not None or (self.sharded and on_gpu)

    @property
    def buckets_settle(self) -> bool:
        """Whether the first backward pass decides in which order gradients are added up."""
        return self._ddp is not None and not self._ddp.find_unused_parameters

    def part_of_step(self, last: bool) -> contextlib.AbstractContextManager[Any]:
        """Put around the passes of each part of a step: gradients travel in the last one."""
        if self._parts is not None:
            self._parts.begin(last)
        elif self._ddp is not None and not last:
            return self._ddp.no_sync()
        return contextlib.nullcontext()

    def backward_begins(self, loss: Tensor) -> None:
        """Of the last part of a step: what comes after its own gradients is waiting for others'."""
        if self._watches:
            self.waits.watch(loss)

    def backward_ended(self) -> None:
        """Of the last part: the gradients of all ranks are there, if they travel in the passes."""
        self.waits.end()
        self._require_all_used()

    def _require_all_used(self) -> None:
        """DistributedDataParallel never ends a step of which a parameter got no gradient: the next
        one fails, or never begins. Raises ``ConfigError``.
        """
        for name, parameter in self._must_be_used:
            if parameter.grad is None:
                unused = sum(each.grad is None for _, each in self._must_be_used)
                more = f" and {unused - 1} more" if unused > 1 else ""
                raise ConfigError(
                    f"find_unused_parameters: a step did not use {name}{more}: set"
                    " find_unused_parameters: true, or take them out of the model"
                )

    def make_up(self, run_pass: Callable[[], object]) -> None:
        """After a pass that memory was short for: gives the others what it owes them."""
        if self._parts is not None:
            self._parts.make_up(run_pass)

    def begin_step(self) -> None:
        """Gives all ranks the same running statistics, as DistributedDataParallel does."""
        if self._late:
            self._gang.share_buffers(self.model)

    def average_gradients(self) -> None:
        """Averages the gradients over the ranks unless the passes have done it already."""
        if not self._late:
            return
        gradients = [each.grad for each in self.model.parameters() if each.grad is not None]
        for dtype in {each.dtype for each in gradients}:
            same = [each for each in gradients if each.dtype == dtype]
            flat = torch.cat([each.reshape(-1) for each in same])
            self.waits.begin()
            dist.all_reduce(flat)
            self.waits.end()
            flat /= self._gang.world_size
            parts = torch.split(flat, [each.numel() for each in same])
            torch._foreach_copy_(
                same, [part.view_as(each) for part, each in zip(parts, same, strict=True)]
            )

    def end_scoring(self) -> None:
        """To be called after passes without a backward one, which gives back what was gathered."""
        if self._parts is not None:
            self._parts.give_back()

    def _send_from_rank_0(self, tensors: list[Tensor]) -> None:
        for tensor in tensors:
            dist.broadcast(tensor.detach(), src=0)


def placed_like(whole: Any, example: Any) -> Any:
    """``whole``, a tensor that every rank has, as the part that ``example`` has of it."""
    if not hasattr(example, "device_mesh") or not isinstance(whole, Tensor):
        return whole
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(
        whole.to(example.device), example.device_mesh, example.placements, src_data_rank=None
    )
