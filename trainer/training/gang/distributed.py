"""The gang as the loop sees it: joining, agreeing, leaving. With ``shared_model.py`` and
``preflight.py`` the only user of torch.distributed.

gloo on CPU, NCCL on CUDA with gloo beside it for what the processors agree on, so that agreeing
never waits for a GPU. Rendezvous is torchrun's. A gang of one has no connections at all.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import MutableMapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]  # public

from trainer.training.config import TrainConfig
from trainer.training.gang.rank_environment import RankEnvironment
from trainer.training.training_errors import RendezvousError

# How long the end of another process takes at most to be seen here.
GONE_SECONDS = 1.0
# Of the gang that this process has joined, if it did.
_WATCHES: list[PeerWatch] = []


@dataclass(frozen=True)
class Gang:
    """All ranks of this attempt; every method is a collective that all ranks must call alike.

    ``agreeing`` is the group that carries small values between the processors.
    """

    rank: int
    world_size: int
    device: torch.device
    agreeing: Any = None

    def sum(self, *values: float) -> list[float]:
        """Sums each value over the ranks, in double precision; the same answer on every rank."""
        if self.world_size == 1:
            return [float(value) for value in values]
        packed = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(packed, group=self.agreeing)
        for watch in _WATCHES:
            watch.agreed()
        answer: list[float] = packed.tolist()
        return answer

    def any(self, flag: bool) -> bool:
        """True on every rank as soon as it is true on one."""
        return self.sum(float(flag))[0] > 0

    def gather(self, value: object) -> list[Any]:
        """Every rank's value, by rank, on every rank (small objects only: they are pickled)."""
        if self.world_size == 1:
            return [value]
        values: list[Any] = [None] * self.world_size
        dist.all_gather_object(values, value, group=self.agreeing)
        return values

    def from_first(self, value: object) -> Any:
        """Rank 0's value, on every rank (pickled)."""
        if self.world_size == 1:
            return value
        values = [value]
        dist.broadcast_object_list(values, src=0, group=self.agreeing)
        return values[0]

    def barrier(self) -> None:
        """Returns once every rank has come here."""
        self.sum(0.0)

    def share_buffers(self, model: nn.Module) -> None:
        """Gives every rank rank 0's buffers (running statistics), as a checkpoint would."""
        if self.world_size > 1:
            for buffer in model.buffers():
                dist.broadcast(buffer, src=0)


def join(environment: RankEnvironment, config: TrainConfig) -> Gang:
    """Meets the other ranks. Raises ``RendezvousError`` naming those that did not come in time."""
    device = _own_device(environment)
    if environment.world_size == 1:
        return Gang(0, 1, device)
    export_network_settings(config, os.environ)
    store = _meet(environment, config.rendezvous_timeout_seconds)
    timeout = timedelta(seconds=config.peer_timeout_seconds)
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        store=store,
        rank=environment.rank,
        world_size=environment.world_size,
        timeout=timeout,
    )
    agreeing = None
    if device.type == "cuda":
        agreeing = dist.new_group(backend="gloo", timeout=timeout)
    _WATCHES.append(PeerWatch(environment.rank, environment.world_size, timeout))
    return Gang(environment.rank, environment.world_size, device, agreeing)


class PeerWatch:
    """Connections to all other ranks that carry nothing: one that is closed says who has gone."""

    def __init__(self, rank: int, world_size: int, timeout: timedelta) -> None:
        """A collective."""
        self._others = [other for other in range(world_size) if other != rank]
        self._group = dist.new_group(backend="gloo", timeout=timeout)
        self._silent_seconds = timeout.total_seconds()
        self._agreed_at = time.monotonic()
        self._pending: list[Any] = []

    def agreed(self) -> None:
        """The ranks have just heard of each other."""
        self._agreed_at = time.monotonic()

    def finds_one_gone(self) -> bool:
        """Whether a rank has ended, or all were silent for the time that one is waited for."""
        if time.monotonic() - self._agreed_at >= self._silent_seconds:
            return True
        end = time.monotonic() + GONE_SECONDS
        while time.monotonic() < end:
            for other in self._others:
                try:
                    # Nothing is ever sent. On a closed connection it is refused at once.
                    answer = torch.empty(1)
                    self._pending.append((dist.irecv(answer, other, self._group), answer))
                except RuntimeError:
                    return True
            time.sleep(GONE_SECONDS / 10)
        return False


def lost_a_peer() -> bool:
    """Whether an error of this rank comes from another rank's end. Not a collective; takes up to
    ``GONE_SECONDS``.
    """
    return any(watch.finds_one_gone() for watch in _WATCHES)


def leave() -> None:
    """Closes the connections. Errors do not matter any more: the work is done or has failed."""
    _WATCHES.clear()
    if dist.is_initialized():
        dist.destroy_process_group()


def _own_device(environment: RankEnvironment) -> torch.device:
    if torch.cuda.is_available():
        device = torch.device("cuda", environment.local_rank)
        torch.cuda.set_device(device)
        return device
    if "OMP_NUM_THREADS" not in os.environ:
        # One thread: the same sums on a machine with another number of cores.
        torch.set_num_threads(1)
    return torch.device("cpu")


def _meet(environment: RankEnvironment, timeout_seconds: float) -> Any:
    """The store through which the ranks connect, once all of them have signed in there."""
    limit = timedelta(seconds=timeout_seconds)
    address = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
    me = f"rank {environment.rank} (node {environment.node_rank}, {socket.gethostname()})"
    try:
        store = PrefixStore(f"fence-{environment.fence}", _store(environment.rank, limit))
        store.set(_signed_in(environment.rank), me)
    except (dist.DistError, ValueError, KeyError) as error:
        raise RendezvousError(
            f"{me} cannot reach the rendezvous at {address} within {timeout_seconds:g} s:"
            f" is rank 0's machine up, and its port open to the others? ({error})"
        ) from error
    names = [_signed_in(rank) for rank in range(environment.world_size)]
    try:
        store.wait(names, limit)
    except dist.DistError:
        missing = [rank for rank, name in enumerate(names) if not store.check([name])]
        raise RendezvousError(
            f"{_ranks(missing)} did not come to the rendezvous at {address} within"
            f" {timeout_seconds:g} s; {me} is there"
        ) from None
    return store


def _store(rank: int, timeout: timedelta) -> Any:
    """torchrun's store where it keeps one for its ranks, else rank 0's own.

    As torch.distributed.rendezvous, which would wait for all ranks without saying which are late.
    """
    of_launcher = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    return TCPStore(
        os.environ["MASTER_ADDR"],
        int(os.environ["MASTER_PORT"]),
        is_master=rank == 0 and not of_launcher,
        timeout=timeout,
        wait_for_workers=False,
    )


def _signed_in(rank: int) -> str:
    return f"signed-in-{rank}"


def _ranks(ranks: list[int]) -> str:
    shown = ", ".join(map(str, ranks[:16])) + (", ..." if len(ranks) > 16 else "")
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}"


def network_variables(config: TrainConfig) -> dict[str, str]:
    """Variables for the options that are set; an option left open leaves its variable alone.

    Source: NCCL's user guide, "Environment Variables"; gloo's are those of torch.distributed.
    """
    variables: dict[str, str] = {}
    if config.network_interface is not None:
        variables["NCCL_SOCKET_IFNAME"] = config.network_interface
        # gloo knows plain names only, not NCCL's "=" (exactly) and "^" (all but).
        if config.network_interface[0] not in "=^":
            variables["GLOO_SOCKET_IFNAME"] = config.network_interface
    if config.infiniband is not None:
        variables["NCCL_IB_DISABLE"] = "0" if config.infiniband else "1"
    if config.nccl_algorithm is not None:
        variables["NCCL_ALGO"] = config.nccl_algorithm
    if config.nccl_topology_file is not None:
        variables["NCCL_TOPO_FILE"] = config.nccl_topology_file
    if config.nccl_debug is not None:
        variables["NCCL_DEBUG"] = config.nccl_debug
    return variables


def export_network_settings(config: TrainConfig, environment: MutableMapping[str, str]) -> None:
    """Puts the variables into ``environment``, over what the machine says: they were asked for."""
    environment.update(network_variables(config))
