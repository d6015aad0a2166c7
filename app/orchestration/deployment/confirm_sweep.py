"""A person's word on unknown machines: list them now, or stop keeping them.

Lives here: the two commands. Not here: lists (`sweep_deployment`) or the end of everything
(`destroy_deployment`).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from app.domain.deployment.sweep_rules import DeploymentEventKind
from app.domain.lifecycle.entities import Instance
from app.domain.lifecycle.events import Actor
from app.domain.lifecycle.instance import InstanceState
from app.domain.lifecycle.job import LIVE_JOB_STATES, JobState
from app.domain.units.errors import CommandRefused
from app.orchestration.deployment.adopt_orphans import release_orphan
from app.orchestration.frame.aggregate import open_job
from app.orchestration.frame.lost_rows import SWEEP_CONTROLLER
from app.orchestration.frame.runtime import Runtime
from app.orchestration.gang.release_order import order_release
from app.storage.instances.sweep_repository import DeploymentEvent
from app.storage.unit_of_work import UnitOfWork

WORKING = LIVE_JOB_STATES - {JobState.PAUSED, JobState.STOPPING}
"""States of a job that an adopted machine is kept for, even when a sweep is confirmed."""
_WHY = "a sweep was confirmed and no job needs it"


def ask_for_sweep(uow: UnitOfWork) -> None:
    """Have every region listed now."""
    uow.sweeps.set_orders(asked_at=uow.now)
    uow.notify_after_commit(SWEEP_CONTROLLER)


def confirm_sweep(uow: UnitOfWork, runtime: Runtime, actor: Actor) -> int:
    """Stop keeping unknown machines; returns how many of those kept are given back now.

    Those of a job that goes on stay with it, and have the usual time to register. Raises
    CommandRefused when nothing waits for a confirmation.
    """
    orders = uow.sweeps.orders()
    if not orders.adopting:
        raise CommandRefused("Nothing waits for a confirmation: no unknown machine is kept.")
    # First: from here on an order to give such a machine back is obeyed.
    uow.sweeps.set_orders(adopt_since_at=None, adopt_reason=None)
    released = 0
    for instance_id, job_id in uow.sweeps.adopted():
        if job_id is None:
            instance = uow.instances.lock(instance_id)
            if instance is not None:
                release_orphan(uow, instance, _WHY)
                released += 1
        else:
            released += _decide(uow, runtime, actor, job_id, instance_id)
    text = f"{actor.name} confirmed the sweep: {released} machines are released."
    event = DeploymentEvent(uow.now, DeploymentEventKind.SWEEP_CONFIRMED.value, text, {})
    uow.sweeps.add_event(runtime.entropy.new_id(), event)
    return released


def _decide(
    uow: UnitOfWork, runtime: Runtime, actor: Actor, job_id: UUID, instance_id: UUID
) -> int:
    with open_job(uow, runtime.entropy, job_id, actor) as aggregate:
        instance = uow.instances.get(instance_id)
        if aggregate is None or instance is None:
            return 0
        aggregate.adopt(instance)
        if aggregate.job.state not in WORKING:
            return len(order_release(aggregate, [instance], _WHY))
        _expect_registration(instance, aggregate.now, runtime)
        return 0


def _expect_registration(instance: Instance, now: datetime, runtime: Runtime) -> None:
    if instance.state is InstanceState.LAUNCHED:
        seconds = runtime.limits.registration_timeout_seconds
        instance.register_until_at = now + timedelta(seconds=seconds)
