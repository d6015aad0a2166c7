"""What a gigabyte costs that leaves a bucket's region: list prices as data, with their date.

Sources: "Amazon EC2 on-demand pricing", data transfer (S3 charges the same: "Amazon S3 pricing",
data transfer), and Google Cloud "Cloud Storage pricing", network usage. First tiers, standard
network, micro-USD per 2^30 bytes. Not here: which of them holds between two places (`egress`).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final

from app.domain.units.instants import day_of

AS_OF: Final = datetime(2026, 1, 15, tzinfo=UTC)
SOURCE: Final = f"shipped egress list of {day_of(AS_OF)}"

AWS_BETWEEN_REGIONS: Final[Mapping[str, int]] = MappingProxyType(
    {
        "us-": 20_000,
        "ca-": 20_000,
        "eu-": 20_000,
        "il-": 80_000,
        "ap-northeast-2": 80_000,
        "ap-south-1": 86_000,
        "ap-southeast-2": 98_000,
        "ap-": 90_000,
        "me-": 110_000,
        "sa-": 138_000,
        "af-": 147_000,
        "": 147_000,
    }
)
"""By how the name of the bucket's region begins; the longest beginning holds."""

AWS_NEIGHBOURS: Final = frozenset({"us-east-1", "us-east-2"})
AWS_BETWEEN_NEIGHBOURS: Final = 10_000

AWS_TO_INTERNET: Final[Mapping[str, int]] = MappingProxyType(
    {
        "us-": 90_000,
        "ca-": 90_000,
        "eu-": 90_000,
        "ap-northeast-2": 126_000,
        "ap-southeast-1": 120_000,
        "ap-south-1": 109_300,
        "ap-": 114_000,
        "me-": 117_000,
        "sa-": 150_000,
        "af-": 154_000,
        "": 154_000,
    }
)

GCP_CONTINENTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "us": "north america",
        "northamerica": "north america",
        "nam": "north america",
        "europe": "europe",
        "eu": "europe",
        "eur": "europe",
        "asia": "asia",
        "australia": "oceania",
        "southamerica": "south america",
        "me": "middle east",
        "africa": "africa",
    }
)
"""By the letters before the first dash or digit of a region, or of a bucket's location."""

GCP_WITHIN_CONTINENT: Final[Mapping[str, int]] = MappingProxyType(
    {
        "north america": 20_000,
        "europe": 20_000,
        "asia": 80_000,
        "oceania": 80_000,
        "south america": 140_000,
        "middle east": 80_000,
        "africa": 110_000,
    }
)
GCP_NORTH_AMERICA_EUROPE: Final = 50_000
GCP_FAR_CONTINENTS: Final[Mapping[str, int]] = MappingProxyType(
    {"south america": 140_000, "africa": 110_000, "middle east": 110_000, "oceania": 100_000}
)
"""To or from there, from or to another continent: the dearer one of the two."""

GCP_BETWEEN_CONTINENTS: Final = 80_000
GCP_TO_INTERNET: Final = 120_000
