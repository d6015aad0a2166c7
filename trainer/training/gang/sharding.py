"""A model of which each rank holds a part of every block: FSDP2, and its exchanges.

Blocks are gathered when a pass needs them, and their gradients are scattered: a pass is a fixed
sequence of exchanges, in which every rank must take part. Lives here: that sequence, timed where
the processor waits for it, and how a rank that ran out of memory in the middle keeps its part.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from trainer.training.gang.broken_pass import forget_pass
from trainer.training.gang.distributed import Gang
from trainer.training.gang.waiting import Waits
from trainer.training.models import model_blocks

# PyTorch 2.13 has new names for them and warns of the old ones; 2.11 knows only those.
_GATHER: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_SCATTER: Any = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


class ShardedPasses:
    """The passes of a model that ``shard`` has cut, on one rank.

    ``retries``: a pass that ran out of memory can be made up for.
    """

    def __init__(self, model: nn.Module, gang: Gang, waits: Waits, retries: bool) -> None:
        from torch.distributed.fsdp import FSDPModule

        self._model: Any = model
        self._retries = retries
        shard(model, gang)
        self._blocks: list[Any] = [each for each in model.modules() if isinstance(each, FSDPModule)]
        # The exchanges of a GPU do not hold up the processor: there is nothing to be timed.
        self._exchanges = Exchanges(waits if gang.device.type == "cpu" else None)
        if retries or gang.device.type == "cpu":
            for block in self._blocks:
                block.set_custom_all_gather(Gathering(self._exchanges))
                block.set_custom_reduce_scatter(Scattering(self._exchanges))

    def begin(self, last: bool) -> None:
        """Before each pass of a step. Gradients travel in the last one; where a pass may have to be
        forgotten in each, because what is kept between passes cannot be.
        """
        self._model.set_requires_gradient_sync(last or self._retries)
        self._exchanges.begin()

    def make_up(self, run_pass: Callable[[], object]) -> None:
        """After ``begin`` and a pass that was broken off: takes part in what is left of it, for the
        other ranks' sake, with a pass of any size. Its gradients are worth nothing.
        """
        forget_pass(self._model)
        self._exchanges.begin(left_out=self._exchanges.done)
        run_pass()

    def give_back(self) -> None:
        """After passes without a backward one: nothing stays gathered."""
        for block in self._blocks:
            block.reshard()


class Exchanges:
    """Counts the exchanges of a pass. ``done``: those that this rank took part in."""

    def __init__(self, waits: Waits | None) -> None:
        self._waits = waits
        self._left_out = 0
        self.done = 0

    def begin(self, left_out: int = 0) -> None:
        """A pass begins, of which the others have had the first ``left_out`` from this rank."""
        self.done, self._left_out = 0, left_out

    def run(self, exchange: Callable[[], Any], output: Tensor) -> Any:
        """One exchange into ``output``, or zeros there if it is left out."""
        if self.done < self._left_out:
            self.done += 1
            output.zero_()
            return None
        if self._waits is not None:
            self._waits.begin()
        work = exchange()
        if self._waits is not None:
            self._waits.end()
        self.done += 1
        return work


class _Exchange:
    """What FSDP2 asks of both kinds: memory, and the exchange itself."""

    def __init__(self, exchanges: Exchanges) -> None:
        self._exchanges = exchanges

    def allocate(
        self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        """Memory for an exchange."""
        return torch.empty(math.prod(size), dtype=dtype, device=device).view(*size)


class Gathering(_Exchange):
    """Every rank gets all parts: (parts of a block) to (the block), one axis each."""

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: object, async_op: bool = False
    ) -> Any:
        """Fill ``output_tensor``; the work to wait for, or None with zeros if it is left out."""
        return self._exchanges.run(
            lambda: _GATHER(output_tensor, input_tensor, group, async_op),
            output_tensor,
        )


class Scattering(_Exchange):
    """Every rank gets its part of the sum, one axis each."""

    def __call__(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: object,
        op: object,
        async_op: bool = False,
    ) -> Any:
        """Fill ``output_tensor``; the work to wait for, or None with zeros if it is left out."""
        return self._exchanges.run(
            lambda: _SCATTER(output_tensor, input_tensor, op, group, async_op),
            output_tensor,
        )


def shard(model: nn.Module, gang: Gang) -> None:
    """Cuts every block, and what is in none, into a part for each rank."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(gang.device.type, (gang.world_size,))
    for block in model_blocks(model):
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
