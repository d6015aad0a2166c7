"""What a job's next machines have to bring, and what a machine has brought, at which price.

Lives here: the restore that placement weighs, and the transfer that the bill holds. Not here: the
prices (`app.domain.billing.egress`), or where buckets are (`locate_buckets`).

A size that the agent did not say is taken from the manifest, and its entry is marked estimated.
"""

from __future__ import annotations

from app.domain.billing import egress_prices
from app.domain.billing.egress import CLOUD_OF_SCHEME, Region, Restore, bucket_of, price_to
from app.orchestration.frame.aggregate import JobAggregate
from app.orchestration.frame.fact_context import SMALL_MAX, FactContext, whole_number
from app.orchestration.placement.locate_buckets import LOCATE_CONTROLLER
from app.ports.bucket_places import DEFAULT_BUCKET, BucketPlace

ACCRUE_CONTROLLER = "accrue_costs"


def restore_of(aggregate: JobAggregate) -> Restore | None:
    """What each machine brings before the job goes on; None where that costs nothing for sure."""
    if aggregate.job.committed_step == 0:
        return None
    place = _bucket_place(aggregate)
    if place is not None and not place.named:
        return None
    size = aggregate.uow.traffic.newest_checkpoint_bytes(aggregate.job.id)
    return Restore(size, _region_of(place)) if size else None


def want_bucket_place(aggregate: JobAggregate) -> None:
    """The job has saved its first checkpoint: where it is will be asked before it is needed."""
    key = _bucket_key(aggregate)
    if key:
        aggregate.uow.traffic.want_place(key)
        aggregate.uow.notify_after_commit(LOCATE_CONTROLLER)


def record_restored(context: FactContext) -> None:
    """Put on the machine's bill what it brought for its attempt, once."""
    aggregate, instance, fence = context.aggregate, context.instance, context.fact.fence
    place = _bucket_place(aggregate)
    free = place is not None and not place.named
    if fence is None or instance.pool is None or instance.pool.provider == "local" or free:
        return
    size, estimated = _restored_bytes(context)
    region = _region_of(place)
    price = None if region is None else price_to(region, instance.pool)
    if not size or price == 0:
        return
    new = aggregate.uow.traffic.add_transfer(
        instance.id,
        fence,
        aggregate.now,
        size,
        estimated=estimated,
        microusd_per_gb=price,
        source=egress_prices.SOURCE if region is not None else "unknown place",
        captured_at=egress_prices.AS_OF,
    )
    if new and instance.ended_at is not None:
        # Its bill was made to its end already, and is made again.
        instance.billed_until_at = instance.cost_final_at = None
        aggregate.job.cost_final_at = None
        aggregate.uow.notify_after_commit(ACCRUE_CONTROLLER)


def _restored_bytes(context: FactContext) -> tuple[int, bool]:
    """(size, whether it is only what the manifest says)."""
    data = context.fact.data
    said = whole_number(data.get("restored_bytes"))
    if said is not None:
        return max(0, said), False
    parent = data.get("parent")
    if not isinstance(parent, dict):
        return 0, False
    fence, step = whole_number(parent.get("fence"), SMALL_MAX), whole_number(parent.get("step"))
    if fence is None or step is None:
        return 0, False
    aggregate = context.aggregate
    return aggregate.uow.traffic.checkpoint_bytes(aggregate.job.id, fence, step), True


def _bucket_key(aggregate: JobAggregate) -> str | None:
    """The job's bucket; None for a folder that its spec names."""
    uri = aggregate.spec.checkpoint.uri
    return DEFAULT_BUCKET if uri is None else bucket_of(uri)


def _bucket_place(aggregate: JobAggregate) -> BucketPlace | None:
    key = _bucket_key(aggregate)
    return BucketPlace("", "") if key is None else aggregate.uow.traffic.place_of(key)


def _region_of(place: BucketPlace | None) -> Region | None:
    if place is None or place.region is None:
        return None
    return Region(CLOUD_OF_SCHEME[place.named.partition("://")[0]], place.region)
