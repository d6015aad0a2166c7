"""Places of buckets and transfers from them, in PostgreSQL."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Integer, bindparam, or_, select
from sqlalchemy.dialects.postgresql import insert as upsert

from app.domain.billing.machine_facts import Transfer
from app.ports.bucket_places import BucketPlace
from app.storage.schema import tables
from app.storage.schema.money_tables import bucket_places, transfers
from app.storage.session.ready_statement import Ready
from app.storage.session.record_session import Repository

_transfer, _checkpoint = transfers.c, tables.checkpoints.c

TRANSFER_COLUMNS: Final = (
    _transfer.at,
    _transfer.size_bytes,
    _transfer.microusd_per_gb,
    _transfer.source,
    _transfer.captured_at,
    _transfer.estimated,
)
"""A `Transfer`'s fields, in its order."""

_OF_INSTANCE = Ready(
    select(*TRANSFER_COLUMNS)
    .where(
        _transfer.instance_id == bindparam("this_instance"), _transfer.microusd_per_gb.is_not(None)
    )
    .order_by(_transfer.at, _transfer.fence)
)
_PLACE = Ready(select(*bucket_places.c).where(bucket_places.c.bucket == bindparam("this_bucket")))
_NEWEST = Ready(
    select(_checkpoint.size_bytes)
    .where(_checkpoint.job_id == bindparam("of_job"), _checkpoint.pruned_at.is_(None))
    .order_by(_checkpoint.fence.desc(), _checkpoint.step.desc())
    .limit(1)
)
_ONE = Ready(
    select(_checkpoint.size_bytes).where(
        _checkpoint.job_id == bindparam("of_job"),
        _checkpoint.fence == bindparam("of_fence"),
        _checkpoint.step == bindparam("of_step"),
    )
)
_place = bucket_places.c
_UNPLACED = Ready(
    select(*_place)
    .where(
        _place.region.is_(None),
        _place.named != "",
        or_(_place.looked_up_at.is_(None), _place.looked_up_at <= bindparam("before")),
    )
    .order_by(_place.bucket)
    .limit(bindparam("at_most", type_=Integer))
)


class TrafficRepository(Repository):
    """Places of buckets, and transfers from them."""

    def place_of(self, bucket: str) -> BucketPlace | None:
        """What is known of a bucket, or of `DEFAULT_BUCKET`; None before the first look."""
        row = self._session.row(_PLACE, {"this_bucket": bucket})
        return None if row is None else BucketPlace(*row)

    def record_place(self, place: BucketPlace) -> None:
        """Remember it."""
        values = vars(place)
        fresh = {name: value for name, value in values.items() if name != "bucket"}
        statement = upsert(bucket_places).values(values)
        self._session.execute(
            statement.on_conflict_do_update(index_elements=["bucket"], set_=fresh)
        )

    def want_place(self, bucket: str) -> None:
        """Have it looked for, unless that was done or ordered already."""
        values = vars(BucketPlace(bucket, bucket))
        self._session.execute(upsert(bucket_places).values(values).on_conflict_do_nothing())

    def unplaced(self, looked_before: datetime, limit: int) -> list[BucketPlace]:
        """Buckets never looked for, or in vain and not since then, in order."""
        given = {"before": looked_before, "at_most": limit}
        return [BucketPlace(*row) for row in self._session.rows(_UNPLACED, given)]

    def newest_checkpoint_bytes(self, job_id: UUID) -> int:
        """The size of the newest checkpoint that the job may go on from; 0 without one."""
        return self._session.scalar(_NEWEST, {"of_job": job_id}) or 0

    def checkpoint_bytes(self, job_id: UUID, fence: int, step: int) -> int:
        """The size of one checkpoint; 0 for one that is not known."""
        given = {"of_job": job_id, "of_fence": fence, "of_step": step}
        return self._session.scalar(_ONE, given) or 0

    def add_transfer(
        self, instance_id: UUID, fence: int, at: datetime, size_bytes: int, *, estimated: bool,
        microusd_per_gb: int | None, source: str, captured_at: datetime,
    ) -> bool:  # fmt: skip
        """Record what a machine brought for an attempt; False when that is known already.

        microusd_per_gb: None where no price can be said; then it is on no bill.
        """
        values: dict[str, Any] = {
            "instance_id": instance_id,
            "fence": fence,
            "at": at,
            "size_bytes": size_bytes,
            "estimated": estimated,
            "microusd_per_gb": microusd_per_gb,
            "source": source,
            "captured_at": captured_at,
        }
        statement = upsert(transfers).values(values).on_conflict_do_nothing()
        return bool(self._session.execute(statement.returning(_transfer.fence)).all())

    def transfers(self, instance_id: UUID) -> list[Transfer]:
        """What the machine brought at a price, by time."""
        found = self._session.rows(_OF_INSTANCE, {"this_instance": instance_id})
        return [Transfer(*row) for row in found]
