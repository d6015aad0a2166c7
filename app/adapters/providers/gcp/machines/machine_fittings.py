"""What a machine type gets under the settings: its boot disk and its network interfaces. Pure.

Sources: Compute Engine documentation, "Accelerator-optimized machine family" and "Networking and
GPU machines"; what each type can have is in the catalog.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from app.adapters.providers.gcp.client.gcp_settings import GcpSettings
from app.domain.market.machine_catalog import MachineType

_RDMA_NIC: Final = "MRDMA"


def boot_disk_type(settings: GcpSettings, kind: MachineType | None) -> str:
    """The disk type that is set, where the type takes it, else the type's own preference."""
    if kind is None or not kind.boot_disks or settings.disk_type in kind.boot_disks:
        return settings.disk_type
    return kind.boot_disks[0]


def is_wired(settings: GcpSettings, kind: MachineType) -> bool:
    """Whether a subnetwork is set for each of the type's further interfaces."""
    return (
        len(settings.gpu_subnetworks) >= kind.extra_nics
        and len(settings.rdma_subnetworks) >= kind.rdma_nics
    )


def as_wired(settings: GcpSettings, kind: MachineType) -> MachineType:
    """The type with the network that its machines really have under these settings."""
    if not kind.extra_nics and not kind.rdma_nics:
        return kind
    if is_wired(settings, kind):
        return replace(kind, network_gbps=kind.wired_gbps)
    return replace(kind, fast_network="")


def interfaces_of(
    settings: GcpSettings, kind: MachineType | None, region: str
) -> list[dict[str, Any]]:
    """The machine's interfaces: the first reaches the control plane, all others the gang.

    Only the first has a public address, and only where one is set.
    """
    first: dict[str, Any] = {"network": settings.network}
    if settings.subnetwork is not None:
        first["subnetwork"] = _in_region(settings.subnetwork, region)
    if settings.external_ip:
        first["access_configs"] = [{"name": "External NAT", "type_": "ONE_TO_ONE_NAT"}]
    if kind is not None and kind.nic:
        first["nic_type"] = kind.nic
    if kind is None or not is_wired(settings, kind):
        return [first]
    more = [(one, kind.nic) for one in settings.gpu_subnetworks[: kind.extra_nics]]
    more += [(one, _RDMA_NIC) for one in settings.rdma_subnetworks[: kind.rdma_nics]]
    return [
        first,
        *({"subnetwork": _in_region(one, region), "nic_type": nic} for one, nic in more),
    ]


def _in_region(subnetwork: str, region: str) -> str:
    return subnetwork.replace("{region}", region)
