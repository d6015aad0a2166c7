"""The GPU machine types that the configured regions offer, for a fresh catalog.

What DescribeInstanceTypes tells replaces what was shipped; how GPUs of one machine are connected
is not told, nor which quota counts a type: both are taken from the shipped type of the same name,
or of the same family with the most GPUs. Not here: prices, and which zone has which type
(`region_facts`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from app.adapters.providers.aws.client.aws_settings import PROVIDER, AwsSettings
from app.adapters.providers.aws.client.region_facts import RegionFacts
from app.domain.market.gpu_catalog import model_of
from app.domain.market.machine_catalog import MachineCatalog, MachineType

_GPU_FAMILIES: Final = ("g*", "p*")
_GIGABITS: Final = re.compile(r"(\d+(?:\.\d+)?)x?\s*Gigabit", re.IGNORECASE)


def read_offered_types(
    settings: AwsSettings, facts: RegionFacts, catalog: MachineCatalog
) -> tuple[MachineType, ...]:
    """Every type with whole NVIDIA GPUs that a configured region offers, by name.

    Raises ProviderError.
    """
    wanted = [{"Name": "instance-type", "Values": list(_GPU_FAMILIES)}]
    found: dict[str, MachineType] = {}
    for region in sorted(settings.regions):
        for told in facts.pages(region, "describe_instance_types", "InstanceTypes", Filters=wanted):
            one = _machine_type(told, catalog)
            if one is not None:
                found[one.name] = one
    return tuple(found[name] for name in sorted(found))


def _machine_type(told: Mapping[str, Any], catalog: MachineCatalog) -> MachineType | None:
    gpus = told.get("GpuInfo", {}).get("Gpus", [])
    if not gpus or gpus[0].get("Manufacturer") != "NVIDIA" or int(gpus[0].get("Count", 0)) < 1:
        return None
    model = model_of(str(gpus[0]["Name"]).upper(), gpus[0]["MemoryInfo"]["SizeInMiB"] / 1024)
    if model is None:
        return None
    name, network = str(told["InstanceType"]), told.get("NetworkInfo", {})
    like = catalog.get(name) or _largest_of_family(catalog, name)
    disks = told.get("InstanceStorageInfo", {})
    cards = sorted(network.get("NetworkCards", []), key=lambda one: int(one["NetworkCardIndex"]))
    return MachineType(
        provider=PROVIDER,
        name=name,
        gpu=model.name,
        gpu_count=int(gpus[0]["Count"]),
        gpu_memory_gb=model.memory_gb,
        interconnect="pcie" if like is None or int(gpus[0]["Count"]) < 2 else like.interconnect,
        network_gbps=_gigabits(network.get("NetworkPerformance", "")),
        vcpus=int(told["VCpuInfo"]["DefaultVCpus"]),
        memory_gb=int(told["MemoryInfo"]["SizeInMiB"]) // 1024,
        fast_network="efa" if network.get("EfaSupported") else "",
        compact_placement="cluster"
        in told.get("PlacementGroupInfo", {}).get("SupportedStrategies", []),
        local_nvme_gb=int(disks.get("TotalSizeInGB", 0)),
        local_nvme_disks=sum(int(disk.get("Count", 0)) for disk in disks.get("Disks", [])),
        spot="spot" in told.get("SupportedUsageClasses", []),
        network_cards=len(cards) or 1,
        efa_from_card=next((at for at, one in enumerate(cards) if _takes_efa(one)), 0)
        if network.get("EfaSupported")
        else 0,
        spot_quota="" if like is None else like.spot_quota,
        on_demand_quota="" if like is None else like.on_demand_quota,
    )


def _takes_efa(card: Mapping[str, Any]) -> bool:
    """A card that says nothing takes it where its type does: older answers have no such list."""
    return "efa-only" in card.get("InterfaceTypes", ["efa-only"])


def _gigabits(performance: str) -> float:
    """`Up to 10 Gigabit`, `8x 100 Gigabit`; 1 where the words hold no figure."""
    times = re.match(r"(\d+)x\s", performance)
    found = _GIGABITS.search(performance)
    if found is None:
        return 1.0
    return float(found.group(1)) * (int(times.group(1)) if times is not None else 1)


def _largest_of_family(catalog: MachineCatalog, name: str) -> MachineType | None:
    family = name.partition(".")[0]
    found = [one for one in catalog.types if one.name.startswith(f"{family}.")]
    return max(found, key=lambda one: one.gpu_count, default=None)
