"""What people have set against new machines of a job, read where a launch is decided on.

Every launch is made of offers that an offer book judged (`read_offers`), so that this is the one
place where freezes and limits are read for launches. Not here: what they do to offers
(`placement.launch_room`), or who sets them (`deployment.freeze_launches`, `access.manage_rules`).
"""

from __future__ import annotations

from uuid import UUID

from app.domain.launch_limits.freeze import Freeze, FreezeScope
from app.domain.launch_limits.launch_limits import LimitsDocument, parse_limits
from app.domain.launch_limits.limit_use import (
    HeldMachines,
    LimitKind,
    LimitUse,
    use_of_queue,
    uses_of,
)
from app.domain.placement.launch_room import LaunchRoom
from app.domain.placement.placement import inside
from app.orchestration.frame.aggregate import JobAggregate
from app.storage.unit_of_work import UnitOfWork


def read_launch_room(aggregate: JobAggregate) -> LaunchRoom | None:
    """As it stays until the transaction ends; None where nothing is set against new machines."""
    uow, project_id = aggregate.uow, aggregate.job.project_id
    uow.launch_gate.open()
    found = uow.launch_gate.of_project(project_id)
    # In this order for everybody, and counted once the lock is there.
    if found.deployment_budget or _limits_machines(found.deployment_limits):
        uow.launch_gate.one_by_one(None)
    if _limits_machines(found.project_limits):
        uow.launch_gate.one_by_one(project_id)
    limits = (
        *_uses(uow, found.deployment_limits, None, None),
        *_uses(uow, found.project_limits, project_id, found.project),
    )
    return LaunchRoom(project_id, found.freezes, limits) if found.freezes or limits else None


def limit_uses(uow: UnitOfWork, project_id: UUID) -> tuple[LimitUse, ...]:
    """The limits that the project is under, as they are used now; for people."""
    found = uow.launch_gate.of_project(project_id)
    return (
        *deployment_uses(uow),
        *_all_uses(uow, found.project_limits, project_id, found.project),
    )


def deployment_uses(uow: UnitOfWork) -> tuple[LimitUse, ...]:
    """The deployment's own limits, as they are used now; for people."""
    return _all_uses(uow, uow.launch_gate.deployment_limits().document, None, None)


def freeze_of(aggregate: JobAggregate) -> Freeze | None:
    """The freeze that leaves the job no cloud to request machines from; None where one is left."""
    freezes = aggregate.uow.launch_gate.of_project(aggregate.job.project_id).freezes
    of_all = next((one for one in freezes if one.place.scope is not FreezeScope.CLOUD), None)
    if of_all is not None or not freezes:
        return of_all
    frozen = {one.place.cloud for one in freezes}
    pools = (offer.pool for offer, _ in aggregate.uow.offers.all())
    infra = aggregate.spec.infra or ()
    left = any(pool.provider not in frozen and inside(pool, infra) for pool in pools)
    return None if left else freezes[0]


def _all_uses(
    uow: UnitOfWork, limits: LimitsDocument | None, project_id: UUID | None, project: str | None
) -> tuple[LimitUse, ...]:
    """Those of machines, and of the queue."""
    if not limits:
        return ()
    queued = uow.launch_gate.queued_jobs(project_id)
    of_queue = use_of_queue(parse_limits(limits), queued, project)
    return (*_uses(uow, limits, project_id, project), *of_queue)


def _uses(
    uow: UnitOfWork, limits: LimitsDocument | None, project_id: UUID | None, project: str | None
) -> tuple[LimitUse, ...]:
    if limits is None or not _limits_machines(limits):
        return ()
    held = uow.launch_gate.held(project_id)
    pools = sorted({pool for one in held for pool in one.pools})
    offers = {offer.pool: offer for offer, _ in uow.offers.of(pools)}
    machines = [
        HeldMachines(one.count, tuple(offers[pool] for pool in one.pools if pool in offers))
        for one in held
    ]
    return uses_of(parse_limits(limits), machines, project)


def _limits_machines(limits: LimitsDocument | None) -> bool:
    """Whether one of them is of machines, and not of the queue alone."""
    return bool(limits and limits.keys() - {LimitKind.QUEUED_JOBS})
