"""What each series of machines can have on the fake cloud: disks, network interfaces, policies.

Sources: Compute Engine documentation, "Accelerator-optimized machine family" (disks of each
series), "About Google Cloud Hyperdisk", machine series support, "Networking and GPU machines"
(interfaces of each type), "Compact placement policy and workload policy overview" (supported
machine types). Written apart from the product's catalogue, which is tested against it.
"""

from __future__ import annotations

from dataclasses import dataclass

_PERSISTENT = frozenset({"pd-standard", "pd-balanced", "pd-ssd"})
_HYPERDISK = frozenset({"hyperdisk-balanced", "hyperdisk-extreme"})


@dataclass(frozen=True)
class Family:
    """disks: what it boots from. gvnic_only: no VirtIO. attachable: GPUs asked for apart."""

    disks: frozenset[str]
    gvnic_only: bool = False
    compact: bool = True
    attachable: frozenset[str] = frozenset()


_FAMILIES = {
    "n1-": Family(
        _PERSISTENT,
        compact=False,
        attachable=frozenset({"nvidia-tesla-t4", "nvidia-tesla-v100", "nvidia-tesla-p100"}),
    ),
    "g2-": Family(frozenset({"pd-balanced", "pd-ssd"})),
    "g4-": Family(_HYPERDISK, gvnic_only=True),
    "a2-": Family(_PERSISTENT),
    "a3-": Family(frozenset({"pd-balanced", "pd-ssd", "hyperdisk-balanced"}), gvnic_only=True),
    "a3-ultragpu-": Family(_HYPERDISK, gvnic_only=True),
    "a4-": Family(_HYPERDISK, gvnic_only=True),
}
_NICS = {
    "a3-edgegpu-8g": {"GVNIC": 5},
    "a3-highgpu-8g": {"GVNIC": 5},
    "a3-megagpu-8g": {"GVNIC": 9},
    "a3-ultragpu-8g": {"GVNIC": 2, "MRDMA": 8},
    "a4-highgpu-8g": {"GVNIC": 2, "MRDMA": 8},
    "g4-standard-384": {"GVNIC": 2},
}


def family_of(machine_type: str) -> Family:
    """By the longest beginning of the name; a type that does not exist is refused elsewhere."""
    fitting = [key for key in _FAMILIES if machine_type.startswith(key)]
    return _FAMILIES[max(fitting, key=len)] if fitting else Family(_PERSISTENT | _HYPERDISK)


def nic_limits(machine_type: str) -> dict[str, int]:
    """How many interfaces of each type; one where the documents name no more."""
    return _NICS.get(machine_type, {"GVNIC": 1})
