"""The network options as the variables that NCCL and gloo read when a process group is made."""

from __future__ import annotations

from collections.abc import MutableMapping

from trainer.training.config import TrainConfig


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
