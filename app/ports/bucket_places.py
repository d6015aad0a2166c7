"""Where buckets are: a cloud that keeps buckets can be asked.

Not here: what it costs (`app.domain.billing.egress`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, runtime_checkable

DEFAULT_BUCKET = ""
"""The key of the deployment's own checkpoint store, whatever its address is."""


@runtime_checkable
class BucketPlaceSource(Protocol):
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
