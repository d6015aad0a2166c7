"""What is rented along with a machine and charged beside it: its disk, its public address.

Lives here: sizes and list prices, as a pool is offered with and as a machine keeps them for its
bill. Not here: turning them into money (`billing`), or where a cloud's prices come from.

A machine keeps the prices of its start: list prices of disks and addresses change once in years,
and a bill can then be made again from its row alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NotRequired, TypedDict

from app.domain.units.apportionment import divide_up

HOURS_PER_MONTH = 730
"""What a price per month is divided by: the mean month. Clouds divide by each month's own hours, so
theirs for a disk is a few percent higher in February, and lower in March."""


class AttachmentsDocument(TypedDict):
    """`Attachments` as they are stored and shown; captured_at in ISO 8601.

    disk_microusd_per_month: not there where it is 0, and in rows of before there was such a price.
    """

    disk_gb: int
    disk_microusd_per_gb_month: int
    public_ip_microusd_per_hour: int
    source: str
    captured_at: str
    disk_microusd_per_month: NotRequired[int]


@dataclass(frozen=True, slots=True)
class Attachments:
    """`public_ip_microusd_per_hour` is 0 for a machine without a public address.

    disk_microusd_per_month: what the disk costs beside its size, for the speed that it is given.
    source, captured_at: who says these prices, and as of when.
    """

    disk_gb: int
    disk_microusd_per_gb_month: int
    public_ip_microusd_per_hour: int
    source: str
    captured_at: datetime
    disk_microusd_per_month: int = 0

    def __post_init__(self) -> None:
        amounts = (
            self.disk_gb,
            self.disk_microusd_per_gb_month,
            self.disk_microusd_per_month,
            self.public_ip_microusd_per_hour,
        )
        if min(amounts) < 0:
            raise ValueError(f"attachments: a size or a price is negative: {amounts}")

    @property
    def microusd_per_hour(self) -> int:
        """All of it for an hour, rounded up: for reserves and comparisons, never for a bill."""
        monthly = self.disk_gb * self.disk_microusd_per_gb_month + self.disk_microusd_per_month
        disk = divide_up(monthly, HOURS_PER_MONTH)
        return disk + self.public_ip_microusd_per_hour

    def with_disk_gb(self, disk_gb: int) -> Attachments:
        """The same with a disk of another size."""
        return replace(self, disk_gb=disk_gb)

    def at(self, paid: Callable[[int], int]) -> Attachments:
        """The same at other prices. paid: what a list price becomes."""
        return replace(
            self,
            disk_microusd_per_gb_month=paid(self.disk_microusd_per_gb_month),
            disk_microusd_per_month=paid(self.disk_microusd_per_month),
            public_ip_microusd_per_hour=paid(self.public_ip_microusd_per_hour),
        )

    def to_json(self) -> AttachmentsDocument:
        """A JSON object; `from_json` reads it back equal."""
        document: AttachmentsDocument = {
            "disk_gb": self.disk_gb,
            "disk_microusd_per_gb_month": self.disk_microusd_per_gb_month,
            "public_ip_microusd_per_hour": self.public_ip_microusd_per_hour,
            "source": self.source,
            "captured_at": self.captured_at.isoformat(),
        }
        if self.disk_microusd_per_month:
            document["disk_microusd_per_month"] = self.disk_microusd_per_month
        return document

    @classmethod
    def from_json(cls, stored: AttachmentsDocument) -> Attachments:
        """What `to_json` wrote. Raises KeyError, TypeError or ValueError for anything else."""
        return cls(
            disk_gb=stored["disk_gb"],
            disk_microusd_per_gb_month=stored["disk_microusd_per_gb_month"],
            public_ip_microusd_per_hour=stored["public_ip_microusd_per_hour"],
            source=stored["source"],
            captured_at=datetime.fromisoformat(stored["captured_at"]),
            disk_microusd_per_month=stored.get("disk_microusd_per_month", 0),
        )
