"""Attempts and their members, in PostgreSQL."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import bindparam, select, text
from sqlalchemy.orm import Session

from app.adapters.postgres import mapping as _mapping  # binds the records  # noqa: F401
from app.adapters.postgres import tables
from app.domain.attempt import LIVE_ATTEMPT_STATES
from app.domain.entities import Attempt, AttemptMember

_attempts = tables.attempts
_members = tables.attempt_members
# Built once: every transaction on a job runs these, and building costs more than running.
_LIVE = select(Attempt).where(
    _attempts.c.job_id == bindparam("of_job"), text(tables.one_of("state", LIVE_ATTEMPT_STATES))
)
_MEMBERS = (
    select(AttemptMember)
    .where(_members.c.attempt_id == bindparam("of_attempt"))
    .order_by(_members.c.node_rank)
)


class AttemptRepository:
    """Implements `app.ports.unit_of_work.Attempts`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def live(self, job_id: UUID) -> Attempt | None:
        """The one live attempt of a job."""
        return self._session.scalars(_LIVE, {"of_job": job_id}).one_or_none()

    def by_fence(self, job_id: UUID, fence: int) -> Attempt | None:
        """The attempt with this number."""
        statement = select(Attempt).where(_attempts.c.job_id == job_id, _attempts.c.fence == fence)
        return self._session.scalars(statement).one_or_none()

    def of_job(self, job_id: UUID) -> list[Attempt]:
        """All attempts, by fence."""
        statement = select(Attempt).where(_attempts.c.job_id == job_id).order_by(_attempts.c.fence)
        return list(self._session.scalars(statement))

    def members(self, attempt_id: UUID) -> list[AttemptMember]:
        """Members, by node rank."""
        return list(self._session.scalars(_MEMBERS, {"of_attempt": attempt_id}))

    def add(self, attempt: Attempt) -> None:
        """Store a new attempt."""
        self._session.add(attempt)
        self._session.flush()

    def add_member(self, member: AttemptMember) -> None:
        """Store a new member."""
        self._session.add(member)
        self._session.flush()

    def remove_member(self, member: AttemptMember) -> None:
        """Take a member out (an instance that never came)."""
        self._session.delete(member)
        self._session.flush()
