"""vCPU quotas of GPU machines, by their names in Service Quotas.

A new account has a Spot quota of 0 for these families, so the first launch fails until more is
asked for. Codes are not used: names are what the quota pages document. Which name counts a type is
the catalog's data; no document tells which spot quota counts the P6 types.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from app.adapters.providers.aws.client.aws_settings import PROVIDER
from app.adapters.providers.aws.client.clients import AwsClients
from app.adapters.providers.machine_catalog import shipped_catalog
from app.domain.market.machine_catalog import MachineType
from app.domain.market.offer import Market
from app.ports.cloud_provider import ProviderError, RefusalKind

_PAGES_MAX: Final = 50


@dataclass(frozen=True)
class GpuQuota:
    """vCPUs that may run at a time in a region, over all families that the name covers."""

    region: str
    name: str
    market: Market
    vcpus: int


def quota_name(machine: MachineType, market: Market) -> str:
    """The quota that counts machines of the type; "" where no document tells."""
    return machine.spot_quota if market is Market.SPOT else machine.on_demand_quota


@functools.cache
def quota_markets() -> Mapping[str, Market]:
    """Every quota of the catalog by name, with the market that it is about."""
    return {
        name: market
        for machine in shipped_catalog(PROVIDER).types
        for market in Market
        if (name := quota_name(machine, market))
    }


def read_quotas(clients: AwsClients, region: str) -> tuple[GpuQuota, ...]:
    """The region's GPU quotas by name. Raises ProviderError."""
    wanted = quota_markets()
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
