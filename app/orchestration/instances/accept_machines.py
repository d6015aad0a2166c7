"""A cloud's machine meets its row: by the launch's answer, by a list, or as an orphan.

Lives here: what is written when a machine is known to exist. Not here: who found it.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from app.domain.lifecycle.entities import Instance
from app.domain.lifecycle.instance import InstanceEvent, InstanceState
from app.domain.market.offer import Pool
from app.domain.wording.machine_words import cloud_words
from app.orchestration.frame.aggregate import JobAggregate
from app.orchestration.frame.runtime import Limits
from app.orchestration.gang.assign_instances import assign
from app.orchestration.gang.release_order import RELEASE_CONTROLLER
from app.orchestration.instances.revise_start import revise_start


def accept_machine(
    aggregate: JobAggregate,
    instance: Instance,
    *,
    provider_instance_id: str,
    pool: Pool,
    launched_at: datetime | None,
    launched_source: str,
    limits: Limits,
    note: str = "",
) -> None:
    """The cloud began to start this machine: record its id, pool, time, and who pays from then.

    launched_at: the cloud's own word; None when it will be told by a later look. note: what the
    machine was asked for and does without, told with the event.
    """
    offer = aggregate.uow.offers.get(pool)
    instance.provider_instance_id = provider_instance_id
    instance.pool = pool
    if offer is not None:
        instance.cloud = offer.cloud
        instance.billing_speed = offer.billing_speed
        instance.on_demand_microusd_per_hour = offer.on_demand_microusd_per_hour
        if offer.attachments is not None:
            attached, asked_gb = offer.attachments, aggregate.spec.resources.disk_gb
            if asked_gb is not None:
                attached = attached.with_disk_gb(asked_gb)
            instance.attachments = attached.to_json()
    cloud = cloud_words(pool.provider)
    aggregate.move_instance(
        instance,
        InstanceEvent.LAUNCH_ACCEPTED,
        f"{cloud[:1].upper()}{cloud[1:]} starts it in {pool.zone}. {note}".rstrip(),
        provider_instance_id=provider_instance_id,
        pool=pool.key,
    )
    instance.describe_at = aggregate.now + timedelta(seconds=limits.describe_soon_seconds)
    instance.register_until_at = aggregate.now + timedelta(
        seconds=limits.registration_timeout_seconds
    )
    _let_token_live(aggregate, instance)
    if instance.state is InstanceState.TERMINATING:
        instance.terminate_at = aggregate.now
        aggregate.uow.notify_after_commit(RELEASE_CONTROLLER)
    set_launch_time(aggregate, instance, launched_at, launched_source)


def _let_token_live(aggregate: JobAggregate, instance: Instance) -> None:
    """A machine may use its token for as long as it is waited for, however late it was started."""
    launch = None if instance.launch_id is None else aggregate.uow.launches.get(instance.launch_id)
    if launch is not None and instance.register_until_at is not None:
        launch.token_expires_at = max(launch.token_expires_at, instance.register_until_at)


def set_launch_time(
    aggregate: JobAggregate, instance: Instance, launched_at: datetime | None, source: str
) -> None:
    """Write when billing began, once the cloud has said so, and open the first assignment.

    A more exact word that comes later corrects it. The machine gets its number among those of the
    job here, for good: neither the order of requests nor that of starts would do, for an earlier
    request may be answered later, and a start may be told late and corrected.
    """
    if launched_at is None:
        return
    if instance.launched_at is not None:
        revise_start(aggregate, instance, launched_at, source)
        return
    instance.ordinal = aggregate.uow.instances.next_ordinal(aggregate.job.id)
    instance.launched_at, instance.launched_source = launched_at, source
    aggregate.uow.flush()
    member = aggregate.member_of(instance.id)
    attempt = aggregate.attempt
    works = member is not None and attempt is not None
    assign(aggregate, instance, attempt.id if works and attempt is not None else None)
