"""What a VM's boot disk and external address cost, by the list shipped with this release.

Sources: Compute Engine, "Disk and image pricing" (per GiB-month while the disk exists) and "VPC
pricing", external IP addresses in use: half the price on a spot VM. Not here: machine time
(`machine_pricing`), or the bill (`app.domain.billing.billing`).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from app.domain.market.attachments import Attachments
from app.domain.market.offer import Market

AS_OF: Final = datetime(2026, 1, 15, tzinfo=UTC)
SOURCE: Final = f"shipped-{AS_OF:%Y-%m-%d}"

DISK_PRICES: Final = {
    "pd-standard": 40_000,
    "pd-balanced": 100_000,
    "pd-ssd": 170_000,
    "hyperdisk-balanced": 80_000,
}
"""Micro-USD per GiB-month in the cheapest regions, by type."""

DISK_PERFORMANCE: Final[dict[str, dict[str, int]]] = {
    "hyperdisk-balanced": {"provisioned_iops": 3_000, "provisioned_throughput": 140}
}
"""What a disk is asked to do where that is billed apart: as much as the price of its space holds.

Source: "Hyperdisk Balanced", baseline of 3,000 IOPS and 140 MiB/s, and its pricing.
"""

_DEARER_PERCENT: Final = {
    "us-east4": 110,
    "us-west2": 120,
    "us-west3": 120,
    "us-west4": 110,
    "europe-west2": 120,
    "europe-west3": 120,
    "europe-west4": 110,
    "asia-northeast1": 130,
    "asia-northeast3": 130,
    "asia-southeast1": 110,
    "australia-southeast1": 135,
}
_ADDRESS_MICROUSD_PER_HOUR: Final = {Market.ON_DEMAND: 5_000, Market.SPOT: 2_500}


def attachments_in(
    region: str, market: Market, disk_type: str, disk_gb: int, *, external_ip: bool
) -> Attachments | None:
    """A boot disk of that size, and an address where VMs have one; None: the type has no price."""
    price = DISK_PRICES.get(disk_type)
    if price is None:
        return None
    return Attachments(
        disk_gb=disk_gb,
        disk_microusd_per_gb_month=price * _DEARER_PERCENT.get(region, 100) // 100,
        public_ip_microusd_per_hour=_ADDRESS_MICROUSD_PER_HOUR[market] if external_ip else 0,
        source=SOURCE,
        captured_at=AS_OF,
    )
