"""Options of sharing the work between ranks and machines."""

from __future__ import annotations

from dataclasses import dataclass

from trainer.protocol.train_options.option import option
from trainer.protocol.train_options.section import Section

_INTERFACE = r"[=^]?[A-Za-z0-9_.,:@-]{1,128}"


@dataclass(frozen=True, kw_only=True)
class ParallelOptions(Section):
    """How the ranks work together. The network's settings become variables of NCCL and gloo."""

    parallel: str = option(
        "ddp",
        choices=("ddp", "fsdp"),
        about="Every rank holds the whole model (ddp) or a part of it (fsdp)",
    )
    find_unused_parameters: bool = option(
        False,
        about="With ddp, for models in which a step may leave parameters unused; costs a walk"
        " through the graph in each step",
    )
    preflight: bool = option(
        True, about="Compare versions, configuration and data of all ranks and test their network"
    )
    least_network_gbps: float | None = option(
        None,
        low=0,
        high=100_000,
        about="Refuse to start if all-reduce is slower than this, in gigabits/s",
    )
    rendezvous_timeout_seconds: float = option(
        300.0, low=1, high=86_400, about="How long to wait at the start for late ranks"
    )
    peer_timeout_seconds: float = option(
        600.0, low=10, high=86_400, about="How long to wait for a rank that went silent"
    )
    network_interface: str | None = option(
        None, pattern=_INTERFACE, how="an interface like eth0", about="Interface between ranks"
    )
    infiniband: bool | None = option(None, about="Whether NCCL may use it; not set: NCCL decides")
    nccl_algorithm: str | None = option(
        None, pattern=r"[A-Za-z0-9,:;^]{1,256}", how="text like Ring,Tree", about="NCCL_ALGO"
    )
    nccl_topology_file: str | None = option(
        None, pattern=r"/[^\x00\n]{1,1000}", how="an absolute path", about="NCCL_TOPO_FILE"
    )
    nccl_debug: str | None = option(
        None, choices=("WARN", "INFO", "TRACE"), about="How much NCCL writes to the log"
    )
