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
        about="Every rank holds the whole model (ddp) or its part of it (fsdp)",
    )
    find_unused_parameters: bool = option(
        False,
        about="For models of which a step leaves parameters unused, with ddp: costs a walk through"
        " the graph in each step",
    )
    preflight: bool = option(
        True, about="Compare versions, configuration and data of all ranks and test their network"
    )
    least_network_gbps: float | None = option(
        None, low=0, high=100_000, about="Refuse to start when all-reduce is slower, in gigabits/s"
    )
    rendezvous_timeout_seconds: float = option(
        300.0, low=1, high=86_400, about="How long ranks that are late are waited for"
    )
    peer_timeout_seconds: float = option(
        600.0, low=10, high=86_400, about="How long a rank that went silent is waited for"
    )
    network_interface: str | None = option(
        None, pattern=_INTERFACE, how="an interface like eth0", about="What ranks talk over"
    )
    infiniband: bool | None = option(None, about="Whether NCCL may use it; open: NCCL decides")
    nccl_algorithm: str | None = option(
        None, pattern=r"[A-Za-z0-9,:;^]{1,256}", how="text like Ring,Tree", about="NCCL_ALGO"
    )
    nccl_topology_file: str | None = option(
        None, pattern=r"/[^\x00\n]{1,1000}", how="an absolute path", about="NCCL_TOPO_FILE"
    )
    nccl_debug: str | None = option(
        None, choices=("WARN", "INFO", "TRACE"), about="How much NCCL writes to the log"
    )
