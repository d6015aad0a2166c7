"""What the local cloud can rent out: recordings, shapes, and whose rules hold in a zone.

Here: constants and look-ups by zone. Not here: prices and availability over time (`market`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from app.domain.market.offer import Hardware

PROVIDER: Final = "local"
EC2: Final = "ec2"
GCE: Final = "gce"

TRACES_FOLDER: Final = Path(__file__).parents[1] / "traces"

MISSING_PRICE_RATIO: Final = 0.318
"""Spot price as a share of on-demand where a recording holds none ($0.9731 of $3.06)."""


@dataclass(frozen=True)
class Recording:
    """One recorded market.

    regions: those of its zones, for programs that need no more of it. price_divisor: recorded
    prices are for a machine this many times as large as the one offered (the Google Cloud recording
    carries the list price of the 8-GPU shape for single-GPU machines).
    """

    name: str
    cloud: str
    instance_type: str
    hardware: Hardware
    regions: tuple[str, ...]
    price_divisor: int = 1


_P3_2XLARGE: Final = Hardware("V100", 1, 16, 8, 61)
_A3_HIGHGPU_1G: Final = Hardware("H100", 1, 80, 26, 234)
_US_EC2: Final = ("us-east-1", "us-east-2", "us-west-2")
_OF_GCE: Final = ("asia-southeast1", "europe-west1", "us-central1", "us-east4", "us-west1")

RECORDINGS: Final = (
    Recording("aws_2023_v100_9z", EC2, "p3.2xlarge", _P3_2XLARGE, _US_EC2),
    Recording("gcp_2025_h100_13z", GCE, "a3-highgpu-1g", _A3_HIGHGPU_1G, _OF_GCE, price_divisor=8),
    Recording("aws_2023_v100_4node", EC2, "p3.2xlarge", _P3_2XLARGE, _US_EC2),
    Recording("aws_2023_v100_16node", EC2, "p3.2xlarge", _P3_2XLARGE, ("us-east-2", "us-west-2")),
)
"""Earlier recordings win: a zone that two of them hold is taken from the first."""


def recorded_regions() -> tuple[str, ...]:
    """Every region of the recordings, sorted."""
    return tuple(sorted({region for recording in RECORDINGS for region in recording.regions}))


def region_of(zone: str, cloud: str) -> str:
    """`us-west-2a` lies in `us-west-2`, `us-central1-a` in `us-central1`."""
    return zone[:-1] if cloud == EC2 else zone.rpartition("-")[0]
