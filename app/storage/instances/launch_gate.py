"""The gate that every launch passes, in PostgreSQL: freezes, limits, what machines hold of them.

A transaction that writes a launch holds the gate open, shared with others; whoever freezes closes
it for a moment, and so waits for those launches and lets none through that has not seen the freeze.
Where the deployment or the project has limits, launches under them are written one after another,
so that each counts the machines of those before it; so are those under a monthly budget of the
deployment. These locks come last, in this order: gate, deployment, project; who holds one waits for
no row. Not here: what a freeze stops and what a machine holds of a limit
(`app.domain.launch_limits`).
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    Integer,
    and_,
    bindparam,
    delete,
    exists,
    func,
    insert,
    or_,
    select,
    text,
)
from sqlalchemy.dialects.postgresql import insert as upsert

from app.domain.launch_limits.freeze import Freeze, FreezePlace, FreezeScope
from app.domain.launch_limits.launch_limits import LimitsDocument
from app.domain.launch_limits.monthly_budget import DEPLOYMENT_PAYER
from app.domain.lifecycle.events import Actor
from app.domain.lifecycle.instance import LIVE_INSTANCE_STATES
from app.domain.lifecycle.stored_documents import BidDocument
from app.domain.market.offer import Pool
from app.storage.jobs.queue_limits import QUEUED_JOBS
from app.storage.schema import tables
from app.storage.schema.money_tables import monthly_budgets
from app.storage.session.ready_statement import Ready
from app.storage.session.record_session import Repository

# First half of the advisory lock's key, as in `operations_repository`.
_GATE: Final = 0x10DF
_OPEN = Ready(select(func.pg_advisory_xact_lock_shared(_GATE, 0)), frozenset())
_LOCK = Ready(
    select(func.pg_advisory_xact_lock(_GATE, bindparam("second_half", type_=Integer))), frozenset()
)
_EVERYBODY, _DEPLOYMENT, _FIRST_PROJECT = 0, 1, 2
_freezes, _limits = tables.freezes, tables.deployment_limits
_projects, _instances = tables.projects, tables.instances
_FREEZE = (
    _freezes.c.scope,
    _freezes.c.cloud,
    _freezes.c.project_id,
    _projects.c.name,
    _freezes.c.frozen_at,
    _freezes.c.frozen_by,
    _freezes.c.reason,
)
_ALL = (
    select(*_FREEZE)
    .select_from(_freezes.outerjoin(_projects, _projects.c.id == _freezes.c.project_id))
    .order_by(_freezes.c.place)
)
_CONCERNS = or_(_freezes.c.project_id.is_(None), _freezes.c.project_id == _projects.c.id)
# One row for each freeze that concerns the project, and one where none does.
_OF_PROJECT = Ready(
    select(
        _projects.c.name,
        _projects.c.rules["limits"],
        _limits.c.limits,
        exists().where(monthly_budgets.c.payer_id == DEPLOYMENT_PAYER),
        *_FREEZE,
    )
    .select_from(_projects.outerjoin(_limits, _limits.c.id == 1).outerjoin(_freezes, _CONCERNS))
    .where(_projects.c.id == bindparam("of_project"))
    .order_by(_freezes.c.place)
)
_AT = Ready(_ALL.where(_freezes.c.place == bindparam("this_place")))
_EVERY = Ready(_ALL)


_SHARED = Ready(select(_limits.c.limits, _limits.c.changed_at, _limits.c.changed_by))
_LIVE = text(f"instances.{tables.one_of('state', LIVE_INSTANCE_STATES)}")


def _held(*conditions: ColumnElement[bool]) -> Ready:
    """Machines that are not gone, counted by pool or, before their cloud has answered, by the bids
    of their launch: a burst of claims writes hundreds of launches with the same few lists of bids.
    """
    launches = tables.launches
    coming = and_(launches.c.id == _instances.c.launch_id, _instances.c.pool.is_(None))
    return Ready(
        select(_instances.c.pool, launches.c.bids, func.count())
        .select_from(_instances.outerjoin(launches, coming))
        .where(_LIVE, *conditions)
        .group_by(_instances.c.pool, launches.c.bids)
        .order_by(_instances.c.pool)
    )


_HELD = _held()
_HELD_BY_PROJECT = _held(
    _instances.c.job_id.in_(
        select(tables.jobs.c.id).where(tables.jobs.c.project_id == bindparam("of_project"))
    )
)
_QUEUED = Ready(QUEUED_JOBS)
_QUEUED_OF_PROJECT = Ready(QUEUED_JOBS.where(tables.jobs.c.project_id == bindparam("of_project")))


@dataclass(frozen=True)
class ProjectGate:
    """What stands at the gate of a project: documents of limits, None where none are set.

    deployment_budget: whether there is one, for all projects together.
    """

    project: str
    freezes: tuple[Freeze, ...]
    project_limits: LimitsDocument | None
    deployment_limits: LimitsDocument | None
    deployment_budget: bool


@dataclass(frozen=True)
class MachinesHeld:
    """So many machines: of a pool, or of a launch that may end in any of its bids' pools."""

    count: int
    pools: tuple[Pool, ...]


@dataclass(frozen=True)
class DeploymentLimits:
    """The deployment's limits, and who set them when; None where nobody has."""

    document: LimitsDocument
    changed_at: datetime | None
    changed_by: str | None


class LaunchGate(Repository):
    """Freezes, limits, and the locks of every transaction that writes a launch."""

    def open(self) -> None:
        """Keep freezes as they are until the transaction ends; others may do the same meanwhile."""
        self._session.rows(_OPEN)

    def close(self) -> None:
        """Wait for the launches that are being written, and let no other one begin."""
        self._session.rows(_LOCK, {"second_half": _EVERYBODY})

    def one_by_one(self, project_id: UUID | None) -> None:
        """Let others that write launches of the project wait; None: of any project."""
        key = _DEPLOYMENT
        if project_id is not None:
            key = max(_FIRST_PROJECT, zlib.crc32(project_id.bytes) & 0x7FFFFFFF)
        self._session.rows(_LOCK, {"second_half": key})

    def held(self, project_id: UUID | None) -> list[MachinesHeld]:
        """Machines of the project that are not gone; None: of all projects, and of none."""
        if project_id is None:
            rows = self._session.rows(_HELD)
        else:
            rows = self._session.rows(_HELD_BY_PROJECT, {"of_project": project_id})
        return [MachinesHeld(count, _pools(pool, bids)) for pool, bids, count in rows]

    def queued_jobs(self, project_id: UUID | None) -> int:
        """Jobs of the project that have not started; None: of all projects."""
        if project_id is None:
            return int(self._session.scalar(_QUEUED))
        return int(self._session.scalar(_QUEUED_OF_PROJECT, {"of_project": project_id}))

    def of_project(self, project_id: UUID) -> ProjectGate:
        """What is set against new machines of the project."""
        rows = self._session.rows(_OF_PROJECT, {"of_project": project_id})
        project, own, shared, budget = rows[0][:4]
        freezes = tuple(_freeze(row[4:]) for row in rows if row[4] is not None)
        return ProjectGate(project, freezes, own, shared, budget)

    def deployment_limits(self) -> DeploymentLimits:
        """Of all projects together."""
        row = self._session.row(_SHARED)
        return DeploymentLimits(*row) if row is not None else DeploymentLimits({}, None, None)

    def limit_deployment(self, limits: DeploymentLimits) -> None:
        """Replace them."""
        values = {
            "limits": limits.document,
            "changed_at": limits.changed_at,
            "changed_by": limits.changed_by,
        }
        self._session.execute(
            upsert(_limits)
            .values(id=1, **values)
            .on_conflict_do_update(index_elements=["id"], set_=values)
        )

    def freezes(self) -> tuple[Freeze, ...]:
        """All of them, by place."""
        return tuple(_freeze(row) for row in self._session.rows(_EVERY))

    def freeze_at(self, place: FreezePlace) -> Freeze | None:
        """The freeze of this place, if there is one."""
        row = self._session.row(_AT, {"this_place": place.key})
        return None if row is None else _freeze(row)

    def add(self, freeze: Freeze) -> None:
        """Store a freeze of a place that has none."""
        place = freeze.place
        self._session.execute(
            insert(_freezes).values(
                place=place.key,
                scope=place.scope,
                cloud=place.cloud,
                project_id=place.project_id,
                frozen_at=freeze.frozen_at,
                frozen_by=str(freeze.frozen_by),
                reason=freeze.reason,
            )
        )

    def remove(self, place: FreezePlace) -> None:
        """Forget the freeze of this place."""
        self._session.execute(delete(_freezes).where(_freezes.c.place == place.key))


def _pools(pool: str | None, bids: list[BidDocument] | None) -> tuple[Pool, ...]:
    keys = [bid["pool"] for bid in bids or ()] if pool is None else [pool]
    return tuple(Pool.parse(key) for key in keys)


def _freeze(row: tuple[Any, ...]) -> Freeze:
    scope, cloud, project_id, project, frozen_at, frozen_by, reason = row
    place = FreezePlace(FreezeScope(scope), cloud, project_id, project)
    return Freeze(place, frozen_at, Actor.parse(frozen_by), reason)
