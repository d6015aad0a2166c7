"""Give rows to machines that no row knows, and either give them back or keep them for their job.

Lives here: what is written for one such machine. Not here: finding it, or the decision to keep
(`sweep_deployment`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from app.domain.deployment.credentials import digest, launch_token
from app.domain.deployment.sweep_rules import DeploymentEventKind, saved_microusd_per_day
from app.domain.lifecycle.entities import Assignment, Instance, Launch
from app.domain.lifecycle.events import Actor, ActorKind, JobEventKind
from app.domain.lifecycle.instance import (
    INSTANCE_TRANSITIONS,
    EndedBy,
    InstanceEvent,
    InstanceState,
)
from app.domain.lifecycle.launch import LaunchOutcome
from app.domain.notifications.triggers import Trigger
from app.domain.units.money import format_usd
from app.orchestration.frame.aggregate import JobAggregate, open_job
from app.orchestration.frame.lost_rows import SWEEP_CONTROLLER
from app.orchestration.frame.runtime import Runtime
from app.orchestration.frame.tell_channels import tell_of_deployment
from app.orchestration.gang.release_order import ADOPTED, RELEASE_CONTROLLER, order_release
from app.orchestration.instances.accept_machines import accept_machine
from app.orchestration.transitions.lose_instances import record_end
from app.ports.cloud_provider import CloudMachine
from app.storage.instances.sweep_repository import DeploymentEvent
from app.storage.unit_of_work import UnitOfWork

_LOST = "lost with its row"
SWEEP_ACTOR = Actor(ActorKind.CLOUD, SWEEP_CONTROLLER)


@dataclass(frozen=True)
class OrphanMachine:
    """A machine that no live row knows; who pays for it, and from when.

    launch_id: by its tag. unknown_launch: no such launch is stored.
    """

    machine: CloudMachine
    job_id: UUID | None
    launch_id: UUID | None
    unknown_launch: bool
    since: datetime
    source: str


def adopt_orphans(
    uow: UnitOfWork,
    runtime: Runtime,
    provider: str,
    orphans: Iterable[OrphanMachine],
    *,
    keep: bool,
) -> None:
    """Give each a row. keep: for its job, or for a person to decide; else it is released.

    A job is opened once for all of its own: it may have lost thousands of rows. One that is locked
    elsewhere has its turn at the next list.
    """
    of_job: dict[UUID, list[OrphanMachine]] = {}
    for orphan in orphans:
        if orphan.job_id is None:
            _adopt_for_deployment(uow, runtime, provider, orphan, keep=keep)
        else:
            of_job.setdefault(orphan.job_id, []).append(orphan)
    for job_id in sorted(of_job):
        with open_job(uow, runtime.entropy, job_id, SWEEP_ACTOR, skip_locked=True) as aggregate:
            if aggregate is None:
                continue
            for orphan in of_job[job_id]:
                _adopt_for_job(aggregate, runtime, provider, orphan, keep=keep)


def _adopt_for_job(
    aggregate: JobAggregate, runtime: Runtime, provider: str, orphan: OrphanMachine, *, keep: bool
) -> None:
    machine, limits = orphan.machine, runtime.limits
    instance = _row(aggregate.uow, runtime, provider, machine, aggregate.job.id)
    if keep and machine.ended_at is None:
        instance.launch_id = _launch_row(aggregate, runtime, provider, orphan)
    aggregate.uow.instances.add(instance)
    aggregate.adopt(instance)
    accept_machine(
        aggregate,
        instance,
        provider_instance_id=machine.provider_instance_id,
        pool=machine.pool,
        launched_at=orphan.since,
        launched_source=orphan.source,
        limits=limits,
    )
    kept = keep and machine.ended_at is None
    fate = "it is kept until a sweep is confirmed" if kept else "it is released"
    saved = _saved(aggregate.uow, machine)
    aggregate.record(
        JobEventKind.INSTANCE_ADOPTED,
        f"The cloud lists a machine of this job that the database did not know: {fate}.",
        about=instance,
        provider_instance_id=machine.provider_instance_id,
        saved_microusd_per_day=None if kept else saved,
    )
    if machine.ended_at is not None:
        # It came and went between two lists: still, somebody has to pay for it.
        record_end(
            aggregate,
            instance,
            ended_at=machine.ended_at,
            ended_source=machine.ended_source,
            ended_by=machine.ended_by or EndedBy.UNKNOWN,
            limits=limits,
        )
        return
    if kept:
        instance.register_until_at = None
    else:
        order_release(aggregate, [instance], "it is no longer needed")
    whose = f"job {aggregate.job.name}"
    record_found(aggregate.uow, runtime, machine, whose, kept=kept, saved=saved)


def _adopt_for_deployment(
    uow: UnitOfWork, runtime: Runtime, provider: str, orphan: OrphanMachine, *, keep: bool
) -> None:
    machine = orphan.machine
    instance = _row(uow, runtime, provider, machine, None)
    instance.state = INSTANCE_TRANSITIONS.next_state(instance.state, InstanceEvent.LAUNCH_ACCEPTED)
    offer = uow.offers.get(machine.pool)
    instance.pool, instance.provider_instance_id = machine.pool, machine.provider_instance_id
    instance.cloud = None if offer is None else offer.cloud
    instance.billing_speed = 1 if offer is None else offer.billing_speed
    if offer is not None and offer.attachments is not None:
        instance.attachments = offer.attachments.to_json()
    instance.launched_at, instance.launched_source = orphan.since, orphan.source
    instance.describe_at = uow.now
    if not keep:
        release_orphan(uow, instance, "it belongs to no job")
    uow.instances.add(instance)
    uow.instances.add_assignment(
        Assignment(
            id=runtime.entropy.new_id(),
            instance_id=instance.id,
            job_id=None,
            attempt_id=None,
            from_at=orphan.since,
        )
    )
    saved = saved_microusd_per_day(None if offer is None else offer.price_microusd_per_hour)
    record_found(uow, runtime, machine, "no job", kept=keep, saved=saved)


def release_orphan(uow: UnitOfWork, instance: Instance, reason: str) -> None:
    """Give back a machine that has no job; the cloud is called by a controller."""
    instance.state = INSTANCE_TRANSITIONS.next_state(instance.state, InstanceEvent.RELEASE_ORDERED)
    instance.release_reason = reason
    instance.release_ordered_at = instance.terminate_at = instance.describe_at = uow.now
    uow.notify_after_commit(RELEASE_CONTROLLER)


def record_found(
    uow: UnitOfWork,
    runtime: Runtime,
    machine: CloudMachine,
    whose: str,
    *,
    kept: bool,
    saved: int | None,
) -> None:
    """One line in the deployment's history, with the money that giving it back saves a day."""
    name = f"{machine.provider_instance_id} ({machine.pool.instance_type}, {machine.pool.zone})"
    if kept:
        kind, fate = DeploymentEventKind.MACHINE_KEPT, "kept until a sweep is confirmed"
    else:
        kind, fate = DeploymentEventKind.ORPHAN_REAPED, "released"
        if saved is not None:
            fate += f", which saves {format_usd(saved)} a day"
    event = DeploymentEvent(
        uow.now,
        kind.value,
        f"{name} of {whose} was unknown to the database: {fate}.",
        {
            "provider_instance_id": machine.provider_instance_id,
            "pool": machine.pool.key,
            "saved_microusd_per_day": None if kept else saved,
        },
    )
    uow.sweeps.add_event(runtime.entropy.new_id(), event)
    occasion = f"machine/{machine.provider_instance_id}"
    tell_of_deployment(uow, runtime.entropy, Trigger.MACHINE_LEAKED, event.message, occasion)


def _saved(uow: UnitOfWork, machine: CloudMachine) -> int | None:
    offer = uow.offers.get(machine.pool)
    return saved_microusd_per_day(None if offer is None else offer.price_microusd_per_hour)


def _row(
    uow: UnitOfWork,
    runtime: Runtime,
    provider: str,
    machine: CloudMachine,
    job_id: UUID | None,
) -> Instance:
    return Instance(
        id=runtime.entropy.new_id(),
        job_id=job_id,
        launch_id=None,
        provider=provider,
        market=machine.pool.market,
        state=InstanceState.REQUESTED,
        origin=ADOPTED,
        requested_at=uow.now,
        updated_at=uow.now,
    )


def _launch_row(
    aggregate: JobAggregate, runtime: Runtime, provider: str, orphan: OrphanMachine
) -> UUID | None:
    """The machine's launch, written anew when it was lost: its agent may register by its token.

    The token is derived from the launch's id, so a lost row costs no machine its way back; it is
    good for as long as an agent trains without an answer.
    """
    launch_id, uow = orphan.launch_id, aggregate.uow
    if launch_id is None:
        return None
    known = uow.launches.get(launch_id)
    if known is not None:
        if known.params_digest == _LOST:
            known.count += 1
        return launch_id if known.job_id == aggregate.job.id else None
    machine, now = orphan.machine, aggregate.now
    token = launch_token(uow.operations.deployment_secret(), str(launch_id))
    uow.launches.add(
        Launch(
            id=launch_id,
            job_id=aggregate.job.id,
            provider=provider,
            client_token=machine.client_token or f"lowtide-{launch_id}",
            count=1,
            min_count=1,
            market=machine.pool.market,
            bids=[],
            params_digest=_LOST,
            purpose="adopted",
            outcome=LaunchOutcome.ACCEPTED,
            created_at=orphan.since,
            token_hash=digest(token),
            token_expires_at=now + timedelta(seconds=runtime.limits.agent_lease_seconds),
            submitted_at=orphan.since,
            settled_at=now,
        )
    )
    return launch_id
