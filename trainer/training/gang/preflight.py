"""Before the first step: do all ranks run the same, on the same data, over a network that works?

A version or a data set that differs on one node shows up hours later as a wrong result or a hang;
here it is one line that names the node.
"""

from __future__ import annotations

import functools
import hashlib
import json
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import torch
import torch.distributed as dist

from trainer.training.config import TrainConfig
from trainer.training.gang.distributed import Gang
from trainer.training.training_errors import PreflightError

ROUNDS = 4
LIMIT_SECONDS = 5.0
_BYTES = {"cuda": 64 << 20, "cpu": 4 << 20}


def compare_ranks(gang: Gang, node_rank: int, facts: Mapping[str, str]) -> None:
    """Raises ``PreflightError`` on all ranks, naming the first one whose facts are not rank 0's."""
    name = f"node {node_rank} ({socket.gethostname()}, rank {gang.rank})"
    everyone = gang.gather((name, dict(facts)))
    first_name, first = everyone[0]
    for name, theirs in everyone[1:]:
        for fact, value in theirs.items():
            if value != first[fact]:
                raise PreflightError(
                    f"{name} has {fact} {value} where {first_name} has {first[fact]};"
                    f" make them equal on all nodes"
                )


def facts_of_rank(config: TrainConfig, train_samples: int, data_digest: str) -> dict[str, str]:
    """What must be equal on all ranks, by the name it gets in a message."""
    found = torch.cuda.is_available()
    nccl = torch.cuda.nccl.version() if found else ()  # type: ignore[no-untyped-call]
    text = json.dumps(asdict(config), sort_keys=True)
    return {
        "torch": torch.__version__,
        "CUDA": str(torch.version.cuda),
        "NCCL": ".".join(map(str, nccl)),
        "a configuration with digest": hashlib.sha256(text.encode()).hexdigest()[:16],
        "training samples": str(train_samples),
        "data with digest": data_digest,
    }


def measure_network(gang: Gang, least_gbps: float | None) -> float:
    """Gigabits/s that an all-reduce moves through the slowest rank; bounded in time.

    The bus bandwidth of NCCL's tests: 2 (n - 1) / n times the buffer, over the time.
    Raises ``PreflightError`` naming the slowest link when it is below ``least_gbps``.
    """
    buffer = torch.ones(_BYTES[gang.device.type] // 4, device=gang.device)
    seconds = _fastest(gang, lambda: dist.all_reduce(buffer))
    moved = 2 * (gang.world_size - 1) / gang.world_size * buffer.numel() * 4
    gbps: float = min(gang.gather(moved * 8 / seconds / 1e9))
    if least_gbps is not None and gbps < least_gbps:
        raise PreflightError(
            f"all-reduce moves {gbps:.3g} Gbit/s, less than least_network_gbps {least_gbps:g};"
            f" the slowest link is {_slowest_link(gang, buffer)}"
        )
    return gbps


def _slowest_link(gang: Gang, buffer: torch.Tensor) -> str:
    """Times each rank's link to the next one alone, one link after the other."""
    mine = float("inf")
    for sender in range(gang.world_size):
        receiver = (sender + 1) % gang.world_size
        seconds = _fastest(gang, functools.partial(_pass_on, gang, buffer, sender, receiver))
        if gang.rank == receiver:
            mine = buffer.numel() * 32 / seconds / 1e9
    links = gang.gather((mine, socket.gethostname()))
    gbps, receiver = min((each[0], rank) for rank, each in enumerate(links))
    sender = (receiver - 1) % gang.world_size
    return (
        f"rank {sender} ({links[sender][1]}) to rank {receiver} ({links[receiver][1]}),"
        f" {gbps:.3g} Gbit/s"
    )


def _pass_on(gang: Gang, buffer: torch.Tensor, sender: int, receiver: int) -> None:
    if gang.rank == sender:
        dist.send(buffer, receiver)
    elif gang.rank == receiver:
        dist.recv(buffer, sender)


def _fastest(gang: Gang, exchange: Callable[[], Any]) -> float:
    """Seconds of the fastest of ``ROUNDS`` exchanges; fewer rounds when the limit comes first."""
    best, started = float("inf"), time.perf_counter()
    for number in range(ROUNDS):
        gang.barrier()
        before = time.perf_counter()
        exchange()
        if gang.device.type == "cuda":
            torch.cuda.synchronize(gang.device)
        taken = time.perf_counter() - before
        late = gang.any(time.perf_counter() - started > LIMIT_SECONDS)
        # The first one also opens the connections.
        if number > 0 or late:
            best = min(best, taken)
        if late:
            break
    return best
