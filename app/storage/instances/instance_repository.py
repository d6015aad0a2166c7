"""Instances, their contacts and assignments, in PostgreSQL."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from app.domain.lifecycle.entities import Assignment, Contact, Instance
from app.domain.market.offer import Pool
from app.storage.instances import instance_statements as statements
from app.storage.money.money_repository import Billing
from app.storage.session.record_session import Repository


@dataclass(frozen=True)
class Hearing:
    """When an api process last wrote that it listens, and since when without a gap."""

    listening_at: datetime | None
    hearing_since_at: datetime | None


class InstanceRepository(Repository):
    """Instances, their contacts and assignments."""

    def get(self, instance_id: UUID) -> Instance | None:
        """The instance without a lock of its own (its job's lock covers it)."""
        return self._session.get(Instance, instance_id)

    def of_job(self, job_id: UUID, *, live_only: bool = True) -> list[Instance]:
        """Instances of a job, by request time then id; read anew, for who has locked the job."""
        statement = statements.LIVE_OF_JOB if live_only else statements.OF_JOB
        return self._session.all(Instance, statement, {"of_job": job_id}, again=True)

    def on_host(self, job_id: UUID, host: str, limit: int) -> list[Instance]:
        """A job's instances, of any state, on one computer of the cloud, the oldest first."""
        given = {"of_job": job_id, "on_host": host, "at_most": limit}
        return self._session.all(Instance, statements.ON_HOST, given)

    def interrupted_pools(self, job_id: UUID, since: datetime) -> frozenset[Pool]:
        """Pools in which the job has since lost a machine, or is about to: taken, or broken."""
        given = {"of_job": job_id, "since": since}
        found = self._session.rows(statements.INTERRUPTED_POOLS, given)
        return frozenset(Pool.parse(key) for (key,) in found)

    def next_ordinal(self, job_id: UUID) -> int:
        """The number of the job's next machine to start, one above all that have started."""
        number: int = self._session.scalar(statements.NEXT_ORDINAL, {"of_job": job_id})
        return number

    def of_launch(self, launch_id: UUID) -> list[Instance]:
        """Instances of a launch, by id."""
        return self._session.all(Instance, statements.OF_LAUNCH, {"of_launch": launch_id})

    def by_provider_id(self, provider: str, provider_instance_id: str) -> Instance | None:
        """The newest row of a machine the cloud names (an adopted one may follow an ended one)."""
        given = {"of_provider": provider, "named": provider_instance_id}
        return self._session.one(Instance, statements.BY_PROVIDER_ID, given)

    def whose(self, provider: str, provider_instance_id: str) -> tuple[UUID, UUID | None] | None:
        """(instance, job) of the same row, which is not loaded: a lock would find it outdated."""
        given = {"of_provider": provider, "named": provider_instance_id}
        found = self._session.row(statements.WHOSE, given)
        return None if found is None else (found[0], found[1])

    def holder_of(self, credential_hash: str) -> tuple[UUID, UUID | None] | None:
        """(instance, job) of a credential: nothing is loaded that a lock would find outdated."""
        found = self._session.row(statements.HOLDER, {"this_hash": credential_hash})
        return None if found is None else (found[0], found[1])

    def add(self, instance: Instance) -> None:
        """Store a new instance."""
        self._session.add(instance)

    def due_terminations(self, now: datetime, limit: int) -> list[tuple[UUID, UUID | None]]:
        """(instance, job) of unleased instances to be given back, earliest first; not locked."""
        given = {"by": now, "at_most": limit}
        return [(row[0], row[1]) for row in self._session.rows(statements.DUE_TERMINATIONS, given)]

    def next_termination_at(self) -> datetime | None:
        """When the first termination is due, leases considered."""
        return self._session.instant(statements.NEXT_TERMINATION)

    def due_descriptions(
        self, now: datetime, limit: int
    ) -> list[tuple[UUID, UUID | None, str, str, str]]:
        """(instance, job, provider, region, provider's id) whose next look is due; not locked."""
        found = self._session.rows(statements.DUE_DESCRIPTIONS, {"by": now, "at_most": limit})
        return [(row[0], row[1], row[2], row[3], row[4]) for row in found]

    def next_description_at(self) -> datetime | None:
        """When the first look is due."""
        return self._session.instant(statements.NEXT_DESCRIPTION)

    def live_of_region(
        self, provider: str, region: str
    ) -> list[tuple[UUID, UUID | None, str | None]]:
        """(instance, job, provider's id) that should exist there, by id; not locked."""
        given = {"of_provider": provider, "of_region": region}
        found = self._session.rows(statements.LIVE_OF_REGION, given)
        return [(row[0], row[1], row[2]) for row in found]

    def lock(self, instance_id: UUID, *, skip_locked: bool = False) -> Instance | None:
        """The instance under its own row lock, read anew; for writers that no job's lock covers."""
        statement = statements.LOCK_OR_SKIP if skip_locked else statements.LOCK
        given = {"this_instance": instance_id}
        return self._session.one(Instance, statement, given, again=True)

    def billable(
        self, now: datetime, billing: Billing, limit: int
    ) -> list[tuple[UUID, UUID | None]]:
        """(instance, its job) where there is something to book or to close, earliest due first.

        A machine that runs is due each accrual period, one that ended at once, and again when its
        end has settled and its prices were asked for after it; a row that never ran, at once.
        Machines without a price at their start are not due (`unpriced`).
        """
        due, _ = statements.billable(billing)
        found = self._session.rows(due, {"by": now, "at_most": limit})
        return [(row[0], row[1]) for row in found]

    def next_billable_at(self, billing: Billing) -> datetime | None:
        """When the first of `billable` is due."""
        _, first_due = statements.billable(billing)
        return self._session.instant(first_due)

    def unpriced(self, limit: int) -> list[Instance]:
        """Launched, not final, and no known price or billing rule at their start; by launch."""
        return self._session.all(Instance, statements.UNPRICED, {"at_most": limit})

    def last_unfinal_end_at(self, provider: str) -> datetime | None:
        """The latest end among the provider's machines whose bill waits to become final."""
        given = {"of_provider": provider}
        return self._session.instant(statements.LAST_UNFINAL_END, given)

    def live_of_project(self, project_id: UUID) -> list[Instance]:
        """Live instances of all jobs of a project, by request time then id."""
        given = {"of_project": project_id}
        return self._session.all(Instance, statements.LIVE_OF_PROJECT, given)

    def silent_ids(self, answered_before: datetime, limit: int) -> list[UUID]:
        """Registered instances not marked unreachable and not heard of since, by id."""
        given = {"by": answered_before, "at_most": limit}
        return self._session.ids(statements.SILENT, given)

    def heard_again_ids(self, answered_after: datetime, limit: int) -> list[UUID]:
        """Instances marked unreachable that were heard of since, by id."""
        given = {"after": answered_after, "at_most": limit}
        return self._session.ids(statements.HEARD_AGAIN, given)

    def contact(self, instance_id: UUID) -> Contact | None:
        """The newest report."""
        return self._session.get(Contact, instance_id)

    def add_contact(self, contact: Contact) -> None:
        """Store the first contact of an instance."""
        self._session.add(contact)

    def assignments(self, instance_id: UUID) -> list[Assignment]:
        """Assignments, by start."""
        given = {"of_instance": instance_id}
        return self._session.all(Assignment, statements.ASSIGNMENTS, given)

    def add_assignment(self, assignment: Assignment) -> None:
        """Store a new assignment."""
        self._session.add(assignment)
