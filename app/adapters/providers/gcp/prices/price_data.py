"""Which SKUs make up a machine's price, and prices for when no catalogue can be asked: dated data.

Here: reading `machine_prices.json`, and a machine's parts. Not here: asking for SKUs
(`sku_catalog`), or adding up (`machine_pricing`).
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from app.domain.market.machine_catalog import MachineType
from app.domain.market.offer import Market

_FILE: Final = Path(__file__).with_name("machine_prices.json")
HOURS_PER_MONTH: Final = 730


@dataclass(frozen=True)
class PriceComponent:
    """So much of one thing: the SKU's description begins with `sku`.

    usd: the shipped on-demand price of one unit in the cheapest regions; None: not shipped.
    """

    sku: str
    quantity: float
    usd_per_hour: float | None


@dataclass(frozen=True)
class PriceData:
    """The shipped document."""

    as_of: datetime
    service: str
    usage_types: dict[Market, str]
    left_out: tuple[str, ...]
    hosts: dict[str, Any]
    gpus: dict[str, Any]
    local_ssd: dict[str, Any]
    spot_share: float
    regions: dict[str, float]

    @property
    def skus(self) -> tuple[str, ...]:
        """How the descriptions begin that matter, longest first."""
        hosts = (host[part] for host in self.hosts.values() for part in ("core", "ram"))
        gpus = (gpu["sku"] for gpu in self.gpus.values())
        return tuple(sorted({*hosts, *gpus, self.local_ssd["sku"]}, key=lambda one: -len(one)))

    def parts(self, kind: MachineType) -> tuple[PriceComponent, ...] | None:
        """What a machine of this type is billed for; None where the data does not say."""
        host = _longest(self.hosts, kind.name)
        gpu = self._gpu(kind)
        if host is None or gpu is None:
            return None
        parts = [
            PriceComponent(host["core"], kind.vcpus, host.get("core_usd")),
            PriceComponent(host["ram"], kind.memory_gb, host.get("ram_usd")),
            PriceComponent(gpu["sku"], kind.gpu_count, gpu.get("usd")),
        ]
        if kind.local_nvme_gb:
            usd = self.local_ssd["usd_per_gib_month"] / HOURS_PER_MONTH
            parts.append(PriceComponent(self.local_ssd["sku"], kind.local_nvme_gb, usd))
        return tuple(parts)

    def fallback_usd(self, kind: MachineType, region: str, market: Market) -> float | None:
        """The shipped price of a machine-hour; None for a type or region that it lacks."""
        parts, factor = self.parts(kind), self.regions.get(region)
        if parts is None or factor is None:
            return None
        total = 0.0
        for part in parts:
            if part.usd_per_hour is None:
                return None
            total += part.quantity * part.usd_per_hour
        return total * factor * (self.spot_share if market is Market.SPOT else 1.0)

    def _gpu(self, kind: MachineType) -> Any:
        name = f"{kind.gpu}-{kind.gpu_memory_gb}"
        series = "-".join(kind.name.split("-")[:2])
        return self.gpus.get(f"{name}/{series}") or self.gpus.get(name)


@functools.cache
def price_data() -> PriceData:
    """The document that came with this release."""
    document = json.loads(_FILE.read_text("utf-8"))
    return PriceData(
        as_of=datetime.fromisoformat(document["as_of"]).replace(tzinfo=UTC),
        service=document["service"],
        usage_types={Market(name): usage for name, usage in document["usage_types"].items()},
        left_out=tuple(document["left_out"]),
        hosts=document["hosts"],
        gpus=document["gpus"],
        local_ssd=document["local_ssd"],
        spot_share=document["fallback_spot_share"],
        regions=document["fallback_regions"],
    )


def _longest(hosts: dict[str, Any], name: str) -> Any:
    """`a3-megagpu` for `a3-megagpu-8g`, `a3` for the other A3 types."""
    fitting = [key for key in hosts if name.startswith(f"{key}-")]
    return hosts[max(fitting, key=len)] if fitting else None
