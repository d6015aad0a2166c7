"""Attempts and their members, in PostgreSQL."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import bindparam, select, text

from app.adapters.postgres import tables
from app.adapters.postgres.ready_statement import Ready
from app.adapters.postgres.record_session import RecordSession
from app.domain.attempt import LIVE_ATTEMPT_STATES
from app.domain.entities import Attempt, AttemptMember

_attempts = tables.attempts
_members = tables.attempt_members
_OF_JOB = select(*_attempts.c).where(_attempts.c.job_id == bindparam("of_job"))
_LIVE = Ready(_OF_JOB.where(text(tables.one_of("state", LIVE_ATTEMPT_STATES))))
_BY_FENCE = Ready(_OF_JOB.where(_attempts.c.fence == bindparam("this_fence")))
_ALL = Ready(_OF_JOB.order_by(_attempts.c.fence))
_MEMBERS = Ready(
    select(*_members.c)
    .where(_members.c.attempt_id == bindparam("of_attempt"))
    .order_by(_members.c.node_rank)
)


class AttemptRepository:
    """Implements `app.ports.unit_of_work.Attempts`."""

    def __init__(self, session: RecordSession) -> None:
        self._session = session

    def live(self, job_id: UUID) -> Attempt | None:
        """The one live attempt of a job."""
        return self._session.one(Attempt, _LIVE, {"of_job": job_id})

    def by_fence(self, job_id: UUID, fence: int) -> Attempt | None:
        """The attempt with this number."""
        return self._session.one(Attempt, _BY_FENCE, {"of_job": job_id, "this_fence": fence})

    def of_job(self, job_id: UUID) -> list[Attempt]:
        """All attempts, by fence."""
        return self._session.all(Attempt, _ALL, {"of_job": job_id})

    def members(self, attempt_id: UUID) -> list[AttemptMember]:
        """Members, by node rank."""
        return self._session.all(AttemptMember, _MEMBERS, {"of_attempt": attempt_id})

    def add(self, attempt: Attempt) -> None:
        """Store a new attempt."""
        self._session.add(attempt)

    def add_member(self, member: AttemptMember) -> None:
        """Store a new member."""
        self._session.add(member)

    def remove_member(self, member: AttemptMember) -> None:
        """Take a member out (an instance that never came)."""
        self._session.delete(member)
