"""Bringing a checkpoint to a machine of another region: what a gigabyte costs, and what it weighs.

Lives here: places of buckets and machines, the price between two of them, and what a restore adds
to an offer. Data may come in for nothing everywhere; it is the bucket's cloud that charges for what
goes out of the region. Not here: the prices (`egress_prices`), the choice (`placement`), the bill
of what was really brought (`billing`), or asking where a bucket is (`locate_buckets`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from app.domain.billing import egress_prices as listed
from app.domain.billing.billing import BYTES_PER_GB
from app.domain.market.offer import Offer, Pool
from app.domain.units.apportionment import divide_up
from app.domain.units.money import format_usd
from app.domain.units.size_text import size_text

KEPT_HOURS = 1
"""How long a machine is taken to be kept when a restore is set against prices per hour: no longer
than the shortest stay, so that a far pool has to be clearly cheaper."""

CLOUD_OF_SCHEME: Mapping[str, str] = {"s3": "aws", "gs": "gcp"}
"""Whose buckets an address means."""

_LETTERS = re.compile(r"[a-z]+")


@dataclass(frozen=True, order=True)
class Region:
    """A region of a cloud; of a bucket also a multi-region, as Google writes it (`us`, `nam4`)."""

    cloud: str
    region: str

    def __str__(self) -> str:
        """`aws us-east-1`."""
        return f"{self.cloud} {self.region}"


@dataclass(frozen=True)
class Restore:
    """What each machine of a gang has to bring before it can go on.

    place: of the bucket; None where it is not known, and then nothing can be said of its cost.
    """

    size_bytes: int
    place: Region | None


def bucket_of(uri: str) -> str | None:
    """`s3://acme` of `s3://acme/ckpt/x`; None for a folder, which costs nothing to read."""
    scheme, _, rest = uri.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}" if scheme in CLOUD_OF_SCHEME else None


def price_to(place: Region, pool: Pool) -> int:
    """Micro-USD per 2^30 bytes from a bucket to a pool's machines; 0 within a region.

    Machines of the local cloud cost nothing to reach: what they cost is told, not charged.
    """
    if pool.provider == "local" or (place.cloud, place.region) == (pool.provider, pool.region):
        return 0
    if place.cloud == "aws":
        return _from_aws(place.region, pool)
    return _from_gcp(place.region, pool)


def cost_microusd(size_bytes: int, microusd_per_gb: int) -> int:
    """What so many bytes cost, rounded up: for comparisons, never for a bill."""
    return divide_up(size_bytes * microusd_per_gb, BYTES_PER_GB)


def restore_microusd(restore: Restore | None, pool: Pool) -> int:
    """What a restore on one machine costs there; 0 where that cannot be said."""
    if restore is None or restore.place is None:
        return 0
    return cost_microusd(restore.size_bytes, price_to(restore.place, pool))


def added_microusd_per_hour(restore: Restore | None, pool: Pool) -> int:
    """What a restore on one machine adds to the hours that it is kept at least."""
    return divide_up(restore_microusd(restore, pool), KEPT_HOURS)


def told(restore: Restore | None, offer: Offer) -> str:
    """What the explanation of an offer adds about it; empty where there is nothing to bring."""
    if restore is None or not restore.size_bytes or offer.pool.provider == "local":
        return ""
    size = size_text(restore.size_bytes)
    if restore.place is None:
        return f"; bringing the checkpoint of {size} is not priced: where its bucket is, is unknown"
    added = added_microusd_per_hour(restore, offer.pool)
    if not added:
        return ""
    return f"; {format_usd(added)} more for bringing the checkpoint of {size} from {restore.place}"


def _from_aws(region: str, pool: Pool) -> int:
    if pool.provider != "aws":
        return _longest(listed.AWS_TO_INTERNET, region)
    if {region, pool.region} == listed.AWS_NEIGHBOURS:
        return listed.AWS_BETWEEN_NEIGHBOURS
    return _longest(listed.AWS_BETWEEN_REGIONS, region)


def _from_gcp(region: str, pool: Pool) -> int:
    if pool.provider != "gcp":
        return listed.GCP_TO_INTERNET
    ends = {_continent(region), _continent(pool.region)}
    if len(ends) == 1:
        return listed.GCP_WITHIN_CONTINENT.get(ends.pop(), listed.GCP_BETWEEN_CONTINENTS)
    if ends == {"north america", "europe"}:
        return listed.GCP_NORTH_AMERICA_EUROPE
    far = (listed.GCP_FAR_CONTINENTS.get(end, 0) for end in ends)
    return max(listed.GCP_BETWEEN_CONTINENTS, *far)


def _continent(region: str) -> str:
    letters = _LETTERS.match(region)
    word = "" if letters is None else letters.group()
    return listed.GCP_CONTINENTS.get(word, word)


def _longest(prices: Mapping[str, int], region: str) -> int:
    beginnings = (beginning for beginning in prices if region.startswith(beginning))
    return prices[max(beginnings, key=len)]
