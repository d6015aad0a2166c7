"""Launches, in PostgreSQL."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import bindparam, func, or_, select, text

from app.domain.lifecycle.entities import Launch
from app.domain.lifecycle.events import JobEventKind
from app.domain.lifecycle.launch import OPEN_LAUNCH_OUTCOMES
from app.storage.schema import tables
from app.storage.session.ready_statement import Ready
from app.storage.session.record_session import Repository

_launches = tables.launches
_BY_TOKEN = Ready(select(*_launches.c).where(_launches.c.token_hash == bindparam("this_hash")))
_events = tables.events
_TOLD_BOOTS = (
    select(_events.c.seq)
    .where(
        _events.c.job_id == bindparam("of_job"),
        _events.c.noun_id == bindparam("of_launch"),
        text(tables.one_of("kind", (JobEventKind.BOOT_FAILED, JobEventKind.BOOT_WARNED))),
    )
    .limit(bindparam("at_most"))
    .subquery()
)
_BOOT_REPORTS = Ready(select(func.count()).select_from(_TOLD_BOOTS))
_OPEN = Ready(
    select(*_launches.c)
    .where(
        _launches.c.job_id == bindparam("of_job"),
        text(tables.one_of("outcome", OPEN_LAUNCH_OUTCOMES)),
    )
    .order_by(_launches.c.created_at, _launches.c.id)
)
_DUE = Ready(
    select(_launches.c.id, _launches.c.job_id)
    .where(
        _launches.c.next_call_at <= bindparam("by"),
        or_(_launches.c.lease_until_at.is_(None), _launches.c.lease_until_at <= bindparam("by")),
    )
    .order_by(_launches.c.next_call_at, _launches.c.id)
    .limit(bindparam("at_most"))
)
_FIRST_DUE = Ready(
    select(func.min(func.greatest(_launches.c.next_call_at, _launches.c.lease_until_at))).where(
        _launches.c.next_call_at.is_not(None)
    )
)


class LaunchRepository(Repository):
    """Launches and the instances they ask for."""

    def get(self, launch_id: UUID) -> Launch | None:
        """The launch."""
        return self._session.get(Launch, launch_id)

    def by_token_hash(self, token_hash: str) -> Launch | None:
        """The launch whose one-time registration token has this hash."""
        return self._session.one(Launch, _BY_TOKEN, {"this_hash": token_hash}, again=True)

    def boot_reports(self, launch: Launch, at_most: int) -> int:
        """How many lines of its job's history tell of its machines' boots; counts to `at_most`."""
        values = {"of_job": launch.job_id, "of_launch": launch.id, "at_most": at_most}
        return int(self._session.scalar(_BOOT_REPORTS, values))

    def open_of_job(self, job_id: UUID) -> list[Launch]:
        """Launches the cloud still has to be asked about, by creation."""
        return self._session.all(Launch, _OPEN, {"of_job": job_id})

    def due(self, now: datetime, limit: int) -> list[tuple[UUID, UUID]]:
        """(launch, job) of launches that are due and unleased, earliest first; not locked."""
        found = self._session.rows(_DUE, {"by": now, "at_most": limit})
        return [(launch_id, job_id) for launch_id, job_id in found]

    def next_due_at(self) -> datetime | None:
        """When the first launch is due, leases considered."""
        return self._session.instant(_FIRST_DUE)

    def add(self, launch: Launch) -> None:
        """Store a new launch."""
        self._session.add(launch)
