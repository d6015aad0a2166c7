"""Instances, their contacts and assignments, in PostgreSQL."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import bindparam, func, or_, select, text
from sqlalchemy.orm import Session

from app.adapters.postgres import mapping as _mapping  # binds the records  # noqa: F401
from app.adapters.postgres import money_tables, tables
from app.adapters.postgres.bill_due import bill_due_at, can_be_billed, is_unpriced
from app.domain.entities import Assignment, Contact, Instance
from app.domain.instance import LIVE_INSTANCE_STATES, EndedBy, InstanceState
from app.domain.offer import Pool
from app.ports.unit_of_work import Billing

_instances = tables.instances
_contacts = tables.contacts
_LIVE = text(tables.one_of("state", LIVE_INSTANCE_STATES))
_HEARD = (InstanceState.REGISTERED, InstanceState.INTERRUPTING)
# Built once: every transaction on a job runs one of these.
_OF_JOB = (
    select(Instance)
    .where(_instances.c.job_id == bindparam("of_job"))
    .order_by(_instances.c.requested_at, _instances.c.id)
)
_LIVE_OF_JOB = _OF_JOB.where(_LIVE)


class InstanceRepository:
    """Implements `app.ports.unit_of_work.Instances`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def get(self, instance_id: UUID) -> Instance | None:
        """The instance without a lock of its own (its job's lock covers it)."""
        return self._session.get(Instance, instance_id)

    def of_job(self, job_id: UUID, *, live_only: bool = True) -> list[Instance]:
        """Instances of a job, by request time then id."""
        statement = _LIVE_OF_JOB if live_only else _OF_JOB
        return list(self._session.scalars(statement, {"of_job": job_id}))

    def interrupted_pools(self, job_id: UUID, since: datetime) -> frozenset[Pool]:
        """Pools in which the cloud has taken a machine of the job since then."""
        statement = (
            select(_instances.c.pool)
            .where(
                _instances.c.job_id == job_id,
                _instances.c.pool.is_not(None),
                _instances.c.ended_by == EndedBy.CLOUD_INTERRUPTION,
                _instances.c.ended_at >= since,
            )
            .distinct()
        )
        return frozenset(self._session.scalars(statement))

    def of_launch(self, launch_id: UUID) -> list[Instance]:
        """Instances of a launch, by id."""
        statement = (
            select(Instance).where(_instances.c.launch_id == launch_id).order_by(_instances.c.id)
        )
        return list(self._session.scalars(statement))

    def by_provider_id(self, provider: str, provider_instance_id: str) -> Instance | None:
        """The newest row of a machine the cloud names (an adopted one may follow an ended one)."""
        statement = (
            select(Instance)
            .where(
                _instances.c.provider == provider,
                _instances.c.provider_instance_id == provider_instance_id,
            )
            .order_by(_instances.c.requested_at.desc(), _instances.c.id.desc())
            .limit(1)
        )
        return self._session.scalars(statement).one_or_none()

    def holder_of(self, credential_hash: str) -> tuple[UUID, UUID | None] | None:
        """(instance, job) of a credential: nothing is loaded that a lock would find outdated."""
        columns = (_instances.c.id, _instances.c.job_id)
        statement = select(*columns).where(_instances.c.credential_hash == credential_hash)
        row = self._session.execute(statement).one_or_none()
        return None if row is None else (row.id, row.job_id)

    def add(self, instance: Instance) -> None:
        """Store a new instance."""
        self._session.add(instance)
        self._session.flush()

    def due_terminations(self, now: datetime, limit: int) -> list[tuple[UUID, UUID | None]]:
        """(instance, job) of unleased instances to be given back, earliest first; not locked."""
        statement = (
            select(_instances.c.id, _instances.c.job_id)
            .where(
                _instances.c.terminate_at <= now,
                _instances.c.provider_instance_id.is_not(None),
                or_(_instances.c.lease_until_at.is_(None), _instances.c.lease_until_at <= now),
            )
            .order_by(_instances.c.terminate_at, _instances.c.id)
            .limit(limit)
        )
        return [(row.id, row.job_id) for row in self._session.execute(statement)]

    def next_termination_at(self) -> datetime | None:
        """When the first termination is due, leases considered."""
        due = func.greatest(_instances.c.terminate_at, _instances.c.lease_until_at)
        statement = select(func.min(due)).where(
            _instances.c.terminate_at.is_not(None),
            _instances.c.provider_instance_id.is_not(None),
        )
        first: datetime | None = self._session.scalar(statement)
        return first

    def due_descriptions(
        self, now: datetime, limit: int
    ) -> list[tuple[UUID, UUID | None, str, str]]:
        """(instance, job, provider, provider's id) whose next look is due; not locked."""
        columns = (
            _instances.c.id,
            _instances.c.job_id,
            _instances.c.provider,
            _instances.c.provider_instance_id,
        )
        statement = (
            select(*columns)
            .where(_instances.c.describe_at <= now, _instances.c.provider_instance_id.is_not(None))
            .order_by(_instances.c.describe_at, _instances.c.id)
            .limit(limit)
        )
        return [
            (row.id, row.job_id, row.provider, row.provider_instance_id)
            for row in self._session.execute(statement)
        ]

    def next_description_at(self) -> datetime | None:
        """When the first look is due."""
        statement = select(func.min(_instances.c.describe_at)).where(
            _instances.c.describe_at.is_not(None), _instances.c.provider_instance_id.is_not(None)
        )
        first: datetime | None = self._session.scalar(statement)
        return first

    def live_of_region(
        self, provider: str, region: str
    ) -> list[tuple[UUID, UUID | None, str | None]]:
        """(instance, job, provider's id) that should exist there, by id; not locked."""
        statement = (
            select(_instances.c.id, _instances.c.job_id, _instances.c.provider_instance_id)
            .where(
                _LIVE,
                _instances.c.provider == provider,
                func.split_part(_instances.c.pool, "/", 2) == region,
            )
            .order_by(_instances.c.id)
        )
        return [
            (row.id, row.job_id, row.provider_instance_id)
            for row in self._session.execute(statement)
        ]

    def lock(self, instance_id: UUID, *, skip_locked: bool = False) -> Instance | None:
        """The instance under its own row lock, read anew; for writers that no job's lock covers."""
        statement = (
            select(Instance)
            .where(_instances.c.id == instance_id)
            .with_for_update(skip_locked=skip_locked)
            .execution_options(populate_existing=True)
        )
        return self._session.scalars(statement).one_or_none()

    def billable(
        self, now: datetime, billing: Billing, limit: int
    ) -> list[tuple[UUID, UUID | None]]:
        """(instance, its job) where there is something to book or to close, earliest due first."""
        due = bill_due_at(billing)
        statement = (
            select(_instances.c.id, _instances.c.job_id)
            .where(can_be_billed(), due <= now)
            .order_by(due, _instances.c.id)
            .limit(limit)
        )
        return [(row.id, row.job_id) for row in self._session.execute(statement)]

    def next_billable_at(self, billing: Billing) -> datetime | None:
        """When the first of `billable` is due."""
        statement = select(func.min(bill_due_at(billing))).where(can_be_billed())
        return self._session.scalar(statement)

    def unpriced(self, limit: int) -> list[Instance]:
        """Launched, not final, and no known price or billing rule at their start; by launch."""
        statement = (
            select(Instance)
            .where(is_unpriced())
            .order_by(_instances.c.launched_at, _instances.c.id)
            .limit(limit)
        )
        return list(self._session.scalars(statement))

    def last_unfinal_end_at(self, provider: str) -> datetime | None:
        """The latest end among the provider's machines whose bill waits to become final."""
        statement = select(func.max(_instances.c.ended_at)).where(
            _instances.c.provider == provider,
            _instances.c.launched_at.is_not(None),
            _instances.c.cost_final_at.is_(None),
        )
        ended_at: datetime | None = self._session.scalar(statement)
        return ended_at

    def live_of_project(self, project_id: UUID) -> list[Instance]:
        """Live instances of all jobs of a project, by request time then id."""
        statement = (
            select(Instance)
            .join(tables.jobs, tables.jobs.c.id == _instances.c.job_id)
            .where(
                tables.jobs.c.project_id == project_id,
                _instances.c.state.in_(sorted(LIVE_INSTANCE_STATES)),
            )
            .order_by(_instances.c.requested_at, _instances.c.id)
        )
        return list(self._session.scalars(statement))

    def silent_ids(self, answered_before: datetime, limit: int) -> list[UUID]:
        """Registered instances not marked unreachable and not heard of since, by id."""
        statement = (
            select(_instances.c.id)
            .join(_contacts, _contacts.c.instance_id == _instances.c.id)
            .where(
                _instances.c.state.in_(_HEARD),
                _instances.c.unreachable_at.is_(None),
                _contacts.c.answered_at <= answered_before,
            )
            .order_by(_instances.c.id)
            .limit(limit)
        )
        return list(self._session.scalars(statement))

    def heard_again_ids(self, answered_after: datetime, limit: int) -> list[UUID]:
        """Instances marked unreachable that were heard of since, by id."""
        statement = (
            select(_instances.c.id)
            .join(_contacts, _contacts.c.instance_id == _instances.c.id)
            .where(
                _instances.c.state.in_(_HEARD),
                _instances.c.unreachable_at.is_not(None),
                _contacts.c.answered_at > answered_after,
            )
            .order_by(_instances.c.id)
            .limit(limit)
        )
        return list(self._session.scalars(statement))

    def contact(self, instance_id: UUID) -> Contact | None:
        """The newest report."""
        return self._session.get(Contact, instance_id)

    def add_contact(self, contact: Contact) -> None:
        """Store the first contact of an instance."""
        self._session.add(contact)

    def assignments(self, instance_id: UUID) -> list[Assignment]:
        """Assignments, by start."""
        table = money_tables.assignments
        statement = (
            select(Assignment)
            .where(table.c.instance_id == instance_id)
            .order_by(table.c.from_at, table.c.id)
        )
        return list(self._session.scalars(statement))

    def add_assignment(self, assignment: Assignment) -> None:
        """Store a new assignment."""
        self._session.flush()
        self._session.add(assignment)
        self._session.flush()
