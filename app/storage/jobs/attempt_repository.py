"""Attempts and their members, in PostgreSQL."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import bindparam, func, select, text

from app.domain.lifecycle.attempt import LIVE_ATTEMPT_STATES, TRAINING_ATTEMPT_STATES
from app.domain.lifecycle.entities import Attempt, AttemptMember
from app.storage.schema import tables
from app.storage.session.attempt_ordinals import ORDINAL
from app.storage.session.due_times import look_at, look_is_due
from app.storage.session.ready_statement import Ready
from app.storage.session.record_session import Repository

_attempts = tables.attempts
_members = tables.attempt_members
_OF_JOB = select(*_attempts.c).where(_attempts.c.job_id == bindparam("of_job"))
_LIVE = Ready(_OF_JOB.where(text(tables.one_of("state", LIVE_ATTEMPT_STATES))))
_BY_FENCE = Ready(_OF_JOB.where(_attempts.c.fence == bindparam("this_fence")))
_ALL = Ready(_OF_JOB.order_by(_attempts.c.fence))
_ORDINALS = Ready(
    select(_attempts.c.fence, ORDINAL).where(_attempts.c.job_id == bindparam("of_job"))
)
_MEMBERS = Ready(
    select(*_members.c)
    .where(_members.c.attempt_id == bindparam("of_attempt"))
    .order_by(_members.c.node_rank)
)
_trains = text(tables.one_of("state", TRAINING_ATTEMPT_STATES))
_STARTS_READ = 50
_START_UPS = Ready(
    select(_attempts.c.job_id, _attempts.c.start_up_seconds)
    .where(
        _attempts.c.work_digest == bindparam("of_work"), _attempts.c.start_up_seconds.is_not(None)
    )
    .order_by(_attempts.c.trained_at.desc(), _attempts.c.id)
    .limit(_STARTS_READ)
)
_OUTLOOK_DUE = Ready(
    select(_attempts.c.job_id)
    .where(_trains, look_is_due(_attempts.c.outlook_at))
    .order_by(_attempts.c.job_id)
    .limit(bindparam("at_most"))
)
_FIRST_OUTLOOK = Ready(select(func.min(look_at(_attempts.c.outlook_at))).where(_trains))
# The few attempts that train have an index of their own, whatever is asked of them.
_SIZE_LOOK_DUE = Ready(
    select(_attempts.c.job_id)
    .where(_trains, _attempts.c.size_look_at.is_not(None), look_is_due(_attempts.c.size_look_at))
    .order_by(_attempts.c.size_look_at, _attempts.c.job_id)
    .limit(bindparam("at_most"))
)
_FIRST_SIZE_LOOK = Ready(
    select(func.min(look_at(_attempts.c.size_look_at))).where(
        _trains, _attempts.c.size_look_at.is_not(None)
    )
)


class AttemptRepository(Repository):
    """Attempts and their members."""

    def live(self, job_id: UUID) -> Attempt | None:
        """The one live attempt of a job."""
        return self._session.one(Attempt, _LIVE, {"of_job": job_id})

    def by_fence(self, job_id: UUID, fence: int) -> Attempt | None:
        """The attempt with this number."""
        return self._session.one(Attempt, _BY_FENCE, {"of_job": job_id, "this_fence": fence})

    def of_job(self, job_id: UUID) -> list[Attempt]:
        """All attempts, by fence."""
        return self._session.all(Attempt, _ALL, {"of_job": job_id})

    def ordinals(self, job_id: UUID) -> dict[int, int]:
        """Which one of the job's attempts each is, from 1, by fence."""
        return {row[0]: row[1] for row in self._session.rows(_ORDINALS, {"of_job": job_id})}

    def members(self, attempt_id: UUID) -> list[AttemptMember]:
        """Members, by node rank."""
        return self._session.all(AttemptMember, _MEMBERS, {"of_attempt": attempt_id})

    def start_ups(self, work_digest: str) -> list[tuple[UUID, float]]:
        """(job, seconds from its process's start to the end of its first step) of ended attempts
        of this work that were measured; the newest first, bounded.
        """
        found = self._session.rows(_START_UPS, {"of_work": work_digest})
        return [(row[0], row[1]) for row in found]

    def outlook_due(self, now: datetime, latest: datetime, limit: int) -> list[UUID]:
        """Jobs whose attempt prepares or trains and has its `outlook_at` behind it, by id."""
        return self._session.ids(_OUTLOOK_DUE, {"by": now, "latest": latest, "at_most": limit})

    def next_outlook_at(self, latest: datetime) -> datetime | None:
        """The earliest `outlook_at` of such attempts; the epoch for one not yet looked at."""
        return self._session.instant(_FIRST_OUTLOOK, {"latest": latest})

    def size_look_due(self, now: datetime, latest: datetime, limit: int) -> list[UUID]:
        """Jobs whose attempt trains and has its `size_look_at` behind it, earliest first."""
        return self._session.ids(_SIZE_LOOK_DUE, {"by": now, "latest": latest, "at_most": limit})

    def next_size_look_at(self, latest: datetime) -> datetime | None:
        """The earliest `size_look_at` of such attempts."""
        return self._session.instant(_FIRST_SIZE_LOOK, {"latest": latest})

    def add(self, attempt: Attempt) -> None:
        """Store a new attempt."""
        self._session.add(attempt)

    def add_member(self, member: AttemptMember) -> None:
        """Store a new member."""
        self._session.add(member)

    def remove_member(self, member: AttemptMember) -> None:
        """Take a member out (an instance that never came)."""
        self._session.delete(member)
