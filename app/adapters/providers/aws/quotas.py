"""vCPU quotas of GPU machines, by their names in Service Quotas.

A new account has a Spot quota of 0 for these families, so the first launch fails until more is
asked for. Codes are not used: names are what the quota pages document.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from app.adapters.providers.aws.clients import AwsClients
from app.domain.offer import Market
from app.ports.cloud_provider import ProviderError, RefusalKind

_PAGES_MAX: Final = 50
_SPOT_NAMES: Final = (
    ("All G and VT Spot Instance Requests", ("g", "gr", "vt")),
    ("All P4, P3 and P2 Spot Instance Requests", ("p2", "p3", "p4")),
    ("All P5 Spot Instance Requests", ("p5",)),
    ("All P6 Spot Instance Requests", ("p6",)),
)
_ON_DEMAND_NAMES: Final = (
    ("Running On-Demand G and VT instances", ("g", "gr", "vt")),
    ("Running On-Demand P instances", ("p",)),
)


@dataclass(frozen=True)
class GpuQuota:
    """vCPUs that may run at a time in a region, over all families that the name covers."""

    region: str
    name: str
    market: Market
    vcpus: int


def quota_name(instance_type: str, market: Market) -> str | None:
    """The quota that a machine type counts against; None for one without GPUs."""
    family = instance_type.partition(".")[0]
    names = _SPOT_NAMES if market is Market.SPOT else _ON_DEMAND_NAMES
    for name, prefixes in names:
        for prefix in prefixes:
            rest = family.removeprefix(prefix)
            if rest != family and (prefix[-1].isdigit() or rest[:1].isdigit()):
                return name
    return None


def read_quotas(clients: AwsClients, region: str) -> tuple[GpuQuota, ...]:
    """The region's GPU quotas by name. Raises ProviderError."""
    wanted = {name: Market.SPOT for name, _ in _SPOT_NAMES}
    wanted |= {name: Market.ON_DEMAND for name, _ in _ON_DEMAND_NAMES}
    asked: dict[str, Any] = {"ServiceCode": "ec2", "MaxResults": 100}
    found: list[GpuQuota] = []
    for _ in range(_PAGES_MAX):
        page = clients.ask("service-quotas", region, "list_service_quotas", **asked)
        found += [
            GpuQuota(region, row["QuotaName"], wanted[row["QuotaName"]], int(row["Value"]))
            for row in page.get("Quotas", [])
            if row.get("QuotaName") in wanted
        ]
        if not page.get("NextToken"):
            return tuple(sorted(found, key=lambda quota: quota.name))
        asked["NextToken"] = page["NextToken"]
    text = f"list_service_quotas in {region}: more than {_PAGES_MAX} pages"
    raise ProviderError(RefusalKind.UNAVAILABLE, text)
