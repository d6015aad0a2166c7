"""Launches, in PostgreSQL."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import func, or_, select
from sqlalchemy.orm import Session

from app.adapters.postgres import tables
from app.domain.entities import Launch
from app.domain.launch import OPEN_LAUNCH_OUTCOMES

_launches = tables.launches


class LaunchRepository:
    """Implements `app.ports.unit_of_work.Launches`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def get(self, launch_id: UUID) -> Launch | None:
        """The launch."""
        return self._session.get(Launch, launch_id)

    def by_token_hash(self, token_hash: str) -> Launch | None:
        """The launch whose one-time registration token has this hash."""
        statement = select(Launch).where(_launches.c.token_hash == token_hash)
        return self._session.scalars(statement).one_or_none()

    def open_of_job(self, job_id: UUID) -> list[Launch]:
        """Launches the cloud still has to be asked about, by creation."""
        statement = (
            select(Launch)
            .where(
                _launches.c.job_id == job_id,
                _launches.c.outcome.in_(sorted(OPEN_LAUNCH_OUTCOMES)),
            )
            .order_by(_launches.c.created_at, _launches.c.id)
        )
        return list(self._session.scalars(statement))

    def due(self, now: datetime, limit: int) -> list[tuple[UUID, UUID]]:
        """(launch, job) of launches that are due and unleased, earliest first; not locked."""
        statement = (
            select(_launches.c.id, _launches.c.job_id)
            .where(
                _launches.c.next_call_at <= now,
                or_(_launches.c.lease_until_at.is_(None), _launches.c.lease_until_at <= now),
            )
            .order_by(_launches.c.next_call_at, _launches.c.id)
            .limit(limit)
        )
        return [(row.id, row.job_id) for row in self._session.execute(statement)]

    def next_due_at(self) -> datetime | None:
        """When the first launch is due, leases considered."""
        due = func.greatest(_launches.c.next_call_at, _launches.c.lease_until_at)
        first: datetime | None = self._session.scalar(
            select(func.min(due)).where(_launches.c.next_call_at.is_not(None))
        )
        return first

    def add(self, launch: Launch) -> None:
        """Store a new launch."""
        self._session.add(launch)
        self._session.flush()
