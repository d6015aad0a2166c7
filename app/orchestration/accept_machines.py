"""A cloud's machine meets its row: by the launch's answer, by a list, or as an orphan.

Lives here: what is written when a machine is known to exist. Not here: who found it.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from app.domain.entities import Instance
from app.domain.instance import InstanceEvent, InstanceState
from app.domain.offer import Pool
from app.orchestration.aggregate import JobAggregate
from app.orchestration.assign_instances import assign
from app.orchestration.release_order import RELEASE_CONTROLLER
from app.orchestration.runtime import Limits


def accept_machine(
    aggregate: JobAggregate,
    instance: Instance,
    *,
    provider_instance_id: str,
    pool: Pool,
    launched_at: datetime | None,
    launched_source: str,
    limits: Limits,
) -> None:
    """The cloud began to start this machine: record its id, pool, time, and who pays from then.

    launched_at: the cloud's own word; None when it will be told by a later look.
    """
    offer = aggregate.uow.offers.get(pool)
    instance.provider_instance_id = provider_instance_id
    instance.pool = pool
    if offer is not None:
        instance.cloud = offer.cloud
        instance.billing_speed = offer.billing_speed
        instance.on_demand_microusd_per_hour = offer.on_demand_microusd_per_hour
    aggregate.move_instance(
        instance,
        InstanceEvent.LAUNCH_ACCEPTED,
        f"{pool.provider} starts it in {pool.zone}.",
        provider_instance_id=provider_instance_id,
        pool=pool.key,
    )
    instance.describe_at = aggregate.now + timedelta(seconds=limits.describe_soon_seconds)
    instance.register_until_at = aggregate.now + timedelta(
        seconds=limits.registration_timeout_seconds
    )
    if instance.state is InstanceState.TERMINATING:
        instance.terminate_at = aggregate.now
        aggregate.uow.ring_after_commit(RELEASE_CONTROLLER)
    set_launch_time(aggregate, instance, launched_at, launched_source)


def set_launch_time(
    aggregate: JobAggregate, instance: Instance, launched_at: datetime | None, source: str
) -> None:
    """Write when billing began, once the cloud has said so, and open the first assignment."""
    if launched_at is None or instance.launched_at is not None:
        return
    instance.launched_at, instance.launched_source = launched_at, source
    aggregate.uow.flush()
    member = aggregate.member_of(instance.id)
    attempt = aggregate.attempt
    works = member is not None and attempt is not None
    assign(aggregate, instance, attempt.id if works and attempt is not None else None)
