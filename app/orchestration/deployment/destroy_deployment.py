"""End everything this deployment rents: the order, what it does to each job, and when it is done.

Lives here: the verbs. Not here: who runs them (`sweep_deployment`, which also lists the regions),
or the confirmation of a sweep (`confirm_sweep`).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from app.domain.deployment.sweep_rules import DESTROY_SECONDS_MAX, DeploymentEventKind
from app.domain.lifecycle.events import Actor, ActorKind
from app.domain.lifecycle.job import TERMINAL_JOB_STATES, StopCause
from app.orchestration.deployment.adopt_orphans import release_orphan
from app.orchestration.frame.aggregate import open_job
from app.orchestration.frame.lost_rows import SWEEP_CONTROLLER
from app.orchestration.frame.runtime import Runtime
from app.orchestration.gang.release_order import order_release
from app.orchestration.gang.stop_job import order_stop
from app.ports.cloud_leftovers import CloudLeftovers
from app.storage.instances.sweep_repository import DeploymentEvent, SweptRegion
from app.storage.unit_of_work import UnitOfWork

_ACTOR = Actor(ActorKind.CONTROLLER, SWEEP_CONTROLLER)
_WHY = "everything of this deployment was ordered to end"


def order_destroy(uow: UnitOfWork, runtime: Runtime, actor: Actor) -> None:
    """From now on every job and machine is ended, in every region, known to a row or not."""
    uow.sweeps.set_orders(destroy_ordered_at=uow.now)
    _tell(uow, runtime, DeploymentEventKind.DESTROY_ORDERED, f"{actor.name} ordered: {_WHY}.")
    uow.notify_after_commit(SWEEP_CONTROLLER)


def end_job(uow: UnitOfWork, runtime: Runtime, job_id: UUID) -> None:
    """Cancel the job and give all its machines back at once, free ones too."""
    with open_job(uow, runtime.entropy, job_id, _ACTOR, skip_locked=True) as aggregate:
        if aggregate is None:
            return
        job = aggregate.job
        if job.state not in TERMINAL_JOB_STATES and job.stop_cause is not StopCause.USER:
            text = f"Cancelled: {_WHY}."
            order_stop(aggregate, StopCause.USER, text, runtime.limits, at_once=True)
        order_release(aggregate, aggregate.living(), _WHY, even_if_free=True)


def end_orphan(uow: UnitOfWork, instance_id: UUID) -> None:
    """Give back a machine that has no job."""
    instance = uow.instances.lock(instance_id, skip_locked=True)
    if instance is not None and instance.release_ordered_at is None:
        release_orphan(uow, instance, _WHY)


def record_progress(uow: UnitOfWork, runtime: Runtime) -> None:
    """Take the order back once nothing is left, or its time is over."""
    orders = uow.sweeps.orders()
    ordered_at = orders.destroy_ordered_at
    if ordered_at is None:
        return
    lists = {(one.provider, one.region): one for one in uow.sweeps.regions()}
    empty = all(
        (found := lists.get((name, region))) is not None
        and _is_empty(found, ordered_at, has_leftovers=isinstance(provider, CloudLeftovers))
        for name, provider in runtime.providers.items()
        for region in provider.regions()
    )
    if empty and not uow.sweeps.living() and not uow.sweeps.live_jobs():
        kind, text = DeploymentEventKind.DESTROYED, "Everything of this deployment is gone."
        uow.sweeps.set_orders(adopt_since_at=None, adopt_reason=None)
    elif uow.now >= ordered_at + timedelta(seconds=DESTROY_SECONDS_MAX):
        kind = DeploymentEventKind.DESTROY_EXPIRED
        text = (
            "An hour after the order to end everything, something is left: check each cloud's "
            "console."
        )
    else:
        return
    uow.sweeps.set_orders(destroy_ordered_at=None)
    _tell(uow, runtime, kind, text)


def _is_empty(one: SweptRegion, ordered_at: datetime, *, has_leftovers: bool) -> bool:
    """Seen without a machine since the order, and after that without anything else."""
    if not one.complete or one.machines or one.swept_at < ordered_at:
        return False
    if not has_leftovers:
        return True
    return one.remains_at is not None and one.remains_at >= ordered_at and not one.remains


def _tell(uow: UnitOfWork, runtime: Runtime, kind: DeploymentEventKind, text: str) -> None:
    event = DeploymentEvent(uow.now, kind.value, text, {})
    uow.sweeps.add_event(runtime.entropy.new_id(), event)
