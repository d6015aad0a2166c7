"""The gang as the loop sees it: joining, agreeing, leaving. The only user of torch.distributed.

gloo on CPU, NCCL on CUDA. Rendezvous is torchrun's; one process started without torchrun is a gang
of one.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import HashStore  # type: ignore[attr-defined]  # public, but not in __all__
from torch.nn.parallel import DistributedDataParallel

from trainer.training.rank_environment import RankEnvironment

# How long a rank waits for a silent peer. A dead one is noticed at once by its closed connection.
PEER_TIMEOUT = timedelta(minutes=10)


@dataclass(frozen=True)
class Gang:
    """All ranks of this attempt; every method is a collective that all ranks must call alike."""

    rank: int
    world_size: int
    device: torch.device

    def sum(self, *values: float) -> list[float]:
        """Sums each value over the ranks, in double precision; the same answer on every rank."""
        packed = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(packed)
        answer: list[float] = packed.tolist()
        return answer

    def any(self, flag: bool) -> bool:
        """True on every rank as soon as it is true on one."""
        return self.sum(float(flag))[0] > 0

    def gather(self, value: Any) -> list[Any]:
        """Every rank's value, by rank, on every rank (small objects only: they are pickled)."""
        values: list[Any] = [None] * self.world_size
        dist.all_gather_object(values, value)
        return values

    def barrier(self) -> None:
        """Returns once every rank has come here."""
        self.sum(0.0)

    def data_parallel(self, model: nn.Module) -> DistributedDataParallel:
        """Wraps ``model``: gradients are averaged over the ranks in the backward pass."""
        return DistributedDataParallel(
            model, device_ids=[self.device.index] if self.device.type == "cuda" else None
        )

    def share_buffers(self, model: nn.Module) -> None:
        """Gives every rank rank 0's buffers (running statistics), as a checkpoint would."""
        for buffer in model.buffers():
            dist.broadcast(buffer, src=0)


def join(environment: RankEnvironment) -> Gang:
    """Meets the other ranks. Raises torch's own error when they do not come in PEER_TIMEOUT."""
    if torch.cuda.is_available():
        device = torch.device("cuda", environment.local_rank)
        torch.cuda.set_device(device)
        backend = "nccl"
    else:
        device = torch.device("cpu")
        backend = "gloo"
        if "OMP_NUM_THREADS" not in os.environ:
            # One thread: the same sums on a machine with another number of cores.
            torch.set_num_threads(1)
    dist.init_process_group(
        backend,
        store=None if environment.under_torchrun else HashStore(),
        rank=environment.rank,
        world_size=environment.world_size,
        timeout=PEER_TIMEOUT,
    )
    return Gang(environment.rank, environment.world_size, device)


def leave() -> None:
    """Closes the connections. Errors do not matter any more: the work is done or has failed."""
    if dist.is_initialized():
        dist.destroy_process_group()
