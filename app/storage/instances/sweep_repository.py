"""Sweeps in PostgreSQL: lists of regions, orders to them, and what they found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, and_, case, func, insert, select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from app.domain.deployment.sweep_rules import VERSIONS_MAX, VERSIONS_SKIPPED
from app.domain.lifecycle.instance import LIVE_INSTANCE_STATES, InstanceState
from app.domain.lifecycle.job import LIVE_JOB_STATES, StopCause
from app.storage.schema import tables
from app.storage.session.ready_statement import Ready
from app.storage.session.record_session import Repository


@dataclass(frozen=True)
class SweepOrders:
    """What is ordered of sweeps now.

    adopt_since_at, adopt_reason: machines that no row knows are kept, until a person confirms.
    asked_at: every region is to be listed anew. destroy_ordered_at: everything is to go.
    """

    adopt_since_at: datetime | None = None
    adopt_reason: str | None = None
    asked_at: datetime | None = None
    destroy_ordered_at: datetime | None = None

    @property
    def adopting(self) -> bool:
        """Whether unknown machines are kept; an order to destroy is stronger."""
        return self.adopt_since_at is not None and self.destroy_ordered_at is None


@dataclass(frozen=True)
class SeenLeftover:
    """Something besides machines, as it was seen last.

    idle_since_at: nothing uses it since then, in all our looks; None while something does.
    """

    kind: str
    id: str
    note: str
    idle_since_at: datetime | None
    microusd_per_day: int | None


@dataclass(frozen=True)
class SweptRegion:
    """The last list of a region; `machines` counts those that had not ended.

    remains: what was there besides machines at `remains_at`; None before the first look.
    """

    provider: str
    region: str
    swept_at: datetime
    complete: bool
    machines: int
    remains: tuple[SeenLeftover, ...] = ()
    remains_at: datetime | None = None


@dataclass(frozen=True)
class DeploymentEvent:
    """Something that happened to the deployment as a whole."""

    at: datetime
    kind: str
    message: str
    data: Mapping[str, Any]


_COLUMN_OF = {
    "adopt_since_at": tables.deployment.c.adopt_since_at,
    "adopt_reason": tables.deployment.c.adopt_reason,
    "asked_at": tables.deployment.c.sweep_asked_at,
    "destroy_ordered_at": tables.deployment.c.destroy_ordered_at,
}
_ORDERS = Ready(select(*_COLUMN_OF.values()))
_OF_REGION = (
    "provider", "region", "swept_at", "complete", "machines", "remains", "remains_at",
)  # fmt: skip
_REGIONS = Ready(
    select(*(tables.sweeps.c[name] for name in _OF_REGION)).order_by(
        tables.sweeps.c.provider, tables.sweeps.c.region
    )
)
_LIVE_INSTANCE = tables.instances.c.state.in_(sorted(LIVE_INSTANCE_STATES))
_LIVE_JOB = tables.jobs.c.state.in_(sorted(LIVE_JOB_STATES))


class SweepRepository(Repository):
    """Sweeps, in the store."""

    def orders(self) -> SweepOrders:
        """What is ordered now."""
        (row,) = self._session.rows(_ORDERS)
        return SweepOrders(**dict(zip(_COLUMN_OF, row, strict=True)))

    def set_orders(self, **changes: datetime | str | None) -> None:
        """Change these fields of the orders and no other: people and sweeps order at once."""
        values = {_COLUMN_OF[name]: value for name, value in changes.items()}
        self._session.execute(update(tables.deployment).values(values))

    def record(
        self, provider: str, region: str, at: datetime, complete: bool, machines: int
    ) -> None:
        """Remember the last list of a region; one that was asked for later is not forgotten."""
        values = {"swept_at": at, "complete": complete, "machines": machines}
        statement = upsert(tables.sweeps).values(provider=provider, region=region, **values)
        self._session.execute(
            statement.on_conflict_do_update(
                index_elements=["provider", "region"],
                set_=values,
                where=tables.sweeps.c.swept_at <= at,
            )
        )

    def regions(self) -> list[SweptRegion]:
        """The last list of every region that was ever listed, by provider and region."""
        rows = (dict(zip(_OF_REGION, row, strict=True)) for row in self._session.rows(_REGIONS))
        return [SweptRegion(**{**row, "remains": _seen(row["remains"])}) for row in rows]

    def record_leftovers(
        self, provider: str, region: str, at: datetime, remains: Sequence[SeenLeftover]
    ) -> None:
        """Remember what is there besides machines, in a region that was listed before."""
        table = tables.sweeps
        told = [_document(one) for one in remains]
        self._session.execute(
            update(table)
            .where(table.c.provider == provider, table.c.region == region)
            .values(remains=told, remains_at=at)
        )

    def add_event(self, event_id: UUID, event: DeploymentEvent) -> None:
        """Append to the deployment's history."""
        values = {"id": event_id, "at": event.at, "kind": event.kind}
        values |= {"message": event.message, "data": dict(event.data)}
        self._session.execute(insert(tables.deployment_events).values(values))

    def recent_events(self, limit: int) -> list[DeploymentEvent]:
        """The deployment's history, newest first."""
        table = tables.deployment_events
        rows = self._session.execute(
            select(table.c.at, table.c.kind, table.c.message, table.c.data)
            .order_by(table.c.at.desc(), table.c.id.desc())
            .limit(limit)
        )
        return [DeploymentEvent(*row) for row in rows]

    def living(self) -> list[tuple[UUID, UUID | None]]:
        """(instance, job) of every row of a machine that may exist, by id; not locked."""
        return self._instances(_LIVE_INSTANCE)

    def adopted(self) -> list[tuple[UUID, UUID | None]]:
        """Those of them that a sweep found and that no order has given back, by id."""
        table = tables.instances
        return self._instances(
            _LIVE_INSTANCE, table.c.origin == "adopted", table.c.release_ordered_at.is_(None)
        )

    def live_jobs(self) -> list[UUID]:
        """Every job that has not ended, by id; not locked."""
        rows = self._session.execute(
            select(tables.jobs.c.id).where(_LIVE_JOB).order_by(tables.jobs.c.id)
        )
        return [row.id for row in rows]

    def to_end(self) -> list[tuple[UUID | None, UUID | None]]:
        """(job, None) of jobs that nobody has cancelled or that have machines not released.

        And (None, instance) of such machines without a job; by id, not locked.
        """
        jobs, instances = tables.jobs, tables.instances
        not_given_back = and_(_LIVE_INSTANCE, instances.c.state != InstanceState.TERMINATING)
        rented = [(job_id, row_id) for row_id, job_id in self._instances(not_given_back)]
        going_on = select(jobs.c.id).where(
            _LIVE_JOB, jobs.c.stop_cause.is_distinct_from(StopCause.USER)
        )
        found = {row.id for row in self._session.execute(going_on)}
        found |= {job_id for job_id, _ in rented if job_id is not None}
        orphans = [(None, row_id) for job_id, row_id in rented if job_id is None]
        return [*((job_id, None) for job_id in sorted(found)), *orphans]

    def skip_versions(self, floor: int) -> list[UUID]:
        """Let every live job count its changes on from `floor`; from 1,000,000 higher, or less
        near the end of its column, where it is there already. The jobs that had no room left.
        """
        table, count = tables.jobs, tables.jobs.c.version
        # Locked in their order first, as by every transaction that changes several.
        locking = select(table.c.id).where(_LIVE_JOB).order_by(table.c.id)
        self._session.execute(locking.with_for_update())
        # A thousandth of the room that is left, so that no number of gaps uses it up.
        beyond = count + func.least(VERSIONS_SKIPPED, (VERSIONS_MAX - count) // 1_000)
        raised = case((count < floor, floor), (count < VERSIONS_MAX, beyond), else_=count)
        self._session.execute(update(table).where(_LIVE_JOB).values(version=raised))
        full = select(table.c.id).where(_LIVE_JOB, count > VERSIONS_MAX - 1_000)
        return [row.id for row in self._session.execute(full.order_by(table.c.id))]

    def _instances(self, *conditions: ColumnElement[Any]) -> list[tuple[UUID, UUID | None]]:
        table = tables.instances
        rows = self._session.execute(
            select(table.c.id, table.c.job_id).where(*conditions).order_by(table.c.id)
        )
        return [(row.id, row.job_id) for row in rows]


def _document(one: SeenLeftover) -> dict[str, Any]:
    since = one.idle_since_at
    return {**asdict(one), "idle_since_at": None if since is None else since.isoformat()}


def _seen(documents: list[dict[str, Any]] | None) -> tuple[SeenLeftover, ...]:
    def read(document: dict[str, Any]) -> SeenLeftover:
        since = document["idle_since_at"]
        at = None if since is None else datetime.fromisoformat(since)
        return SeenLeftover(**{**document, "idle_since_at": at})

    return tuple(map(read, documents or ()))
