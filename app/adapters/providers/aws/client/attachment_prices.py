"""What an EC2 machine's volume and public address cost, by the list shipped with this release.

Sources: "Amazon EBS pricing" (charged per GB-month and second while the volume exists, 60 s at
least; a gp3 volume has 3,000 IOPS and 125 MB/s for nothing, and each MB/s more has its price) and
"Amazon VPC pricing", public IPv4 addresses. Not here: machine time (`on_demand_prices`,
`price_source`), or the bill (`app.domain.billing.billing`).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from app.domain.market.attachments import Attachments

AS_OF: Final = datetime(2026, 1, 15, tzinfo=UTC)
SOURCE: Final = f"shipped list of {AS_OF:%Y-%m-%d}"

VOLUME_PRICES: Final = {"gp2": 100_000, "gp3": 80_000, "st1": 45_000, "sc1": 15_000}
"""Micro-USD per GB-month in the cheapest regions, by type."""

_GP3_ELSEWHERE: Final = {
    "us-west-1": 96_000,
    "ca-central-1": 88_000,
    "eu-west-1": 88_000,
    "eu-west-2": 92_800,
    "eu-west-3": 92_800,
    "eu-central-1": 95_200,
    "eu-north-1": 83_600,
    "ap-northeast-1": 96_000,
    "ap-northeast-2": 91_200,
    "ap-south-1": 91_200,
    "ap-southeast-1": 96_000,
    "ap-southeast-2": 96_000,
    "sa-east-1": 152_000,
}
PUBLIC_IPV4_MICROUSD_PER_HOUR: Final = 5_000
FREE_MBPS: Final = 125
"""Throughput of a gp3 volume that costs nothing, in MB/s."""


def attachments_in(
    region: str, disk_gb: int, *, public_ip: bool, throughput_mbps: int = FREE_MBPS
) -> Attachments:
    """A gp3 volume of that size and speed, and an address where machines have one.

    A provisioned MB/s costs half of what a GB costs: 40,000 micro-USD a month where that is 80,000.
    """
    per_gb = _GP3_ELSEWHERE.get(region, VOLUME_PRICES["gp3"])
    return Attachments(
        disk_gb=disk_gb,
        disk_microusd_per_gb_month=per_gb,
        disk_microusd_per_month=max(0, throughput_mbps - FREE_MBPS) * per_gb // 2,
        public_ip_microusd_per_hour=PUBLIC_IPV4_MICROUSD_PER_HOUR if public_ip else 0,
        source=SOURCE,
        captured_at=AS_OF,
    )
