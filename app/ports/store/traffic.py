"""Where buckets are, and what machines have brought from them: the port of what egress rests on.

Not here: what it costs (`app.domain.billing.egress`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, runtime_checkable
from uuid import UUID

from app.domain.billing.machine_facts import Transfer

DEFAULT_BUCKET = ""
"""The key of the deployment's own checkpoint store, whatever its address is."""


@runtime_checkable
class BucketTeller(Protocol):
    """A provider whose cloud keeps buckets too, and tells where one is."""

    @property
    def bucket_scheme(self) -> str:
        """`s3` or `gs`: how the addresses of its buckets begin."""
        ...

    def locate_bucket(self, bucket: str) -> str:
        """The region of a bucket by its name. Raises ProviderError saying why it is not told."""
        ...


@dataclass(frozen=True)
class BucketPlace:
    """A bucket, as `s3://acme`, or `DEFAULT_BUCKET`, and where it is.

    named: the bucket that was looked for; "" for a folder, which has no place and costs nothing.
    region: None where it is not known; `note` says why. looked_up_at: None before the first look.
    """

    bucket: str
    named: str
    region: str | None = None
    looked_up_at: datetime | None = None
    note: str = ""


class Traffic(Protocol):
    """Places of buckets, and transfers from them."""

    def place_of(self, bucket: str) -> BucketPlace | None:
        """What is known of a bucket, or of `DEFAULT_BUCKET`; None before the first look."""
        ...

    def record_place(self, place: BucketPlace) -> None:
        """Remember it."""
        ...

    def want_place(self, bucket: str) -> None:
        """Have it looked for, unless that was done or ordered already."""
        ...

    def unplaced(self, looked_before: datetime, limit: int) -> list[BucketPlace]:
        """Buckets never looked for, or in vain and not since then, in order."""
        ...

    def newest_checkpoint_bytes(self, job_id: UUID) -> int:
        """The size of the newest checkpoint that the job may go on from; 0 without one."""
        ...

    def checkpoint_bytes(self, job_id: UUID, fence: int, step: int) -> int:
        """The size of one checkpoint; 0 for one that is not known."""
        ...

    def add_transfer(
        self, instance_id: UUID, fence: int, at: datetime, size_bytes: int, *, estimated: bool,
        microusd_per_gb: int | None, source: str, captured_at: datetime,
    ) -> bool:  # fmt: skip
        """Record what a machine brought for an attempt; False when that is known already.

        microusd_per_gb: None where no price can be said; then it is on no bill.
        """
        ...

    def transfers(self, instance_id: UUID) -> list[Transfer]:
        """What the machine brought at a price, by time."""
        ...
