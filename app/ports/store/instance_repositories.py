"""What the rules may ask of the store about instances, and of the deployment itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

from app.domain.lifecycle.entities import (
    Assignment,
    Contact,
    Instance,
)
from app.domain.market.offer import Pool
from app.ports.store.money_store import Billing


@dataclass(frozen=True)
class Hearing:
    """When an api process last wrote that it listens, and since when without a gap."""

    listening_at: datetime | None
    hearing_since_at: datetime | None


class Instances(Protocol):
    """Instances, their contacts and assignments."""

    def get(self, instance_id: UUID) -> Instance | None:
        """The instance without a lock of its own (its job's lock covers it)."""
        ...

    def of_job(self, job_id: UUID, *, live_only: bool = True) -> list[Instance]:
        """Instances of a job, by request time then id."""
        ...

    def on_host(self, job_id: UUID, host: str, limit: int) -> list[Instance]:
        """A job's instances, of any state, on one computer of the cloud, the oldest first."""
        ...

    def interrupted_pools(self, job_id: UUID, since: datetime) -> frozenset[Pool]:
        """Pools in which the job has since lost a machine, or is about to: taken, or broken."""
        ...

    def next_ordinal(self, job_id: UUID) -> int:
        """The number of the job's next machine to start, one above all that have started."""
        ...

    def of_launch(self, launch_id: UUID) -> list[Instance]:
        """Instances of a launch, by id."""
        ...

    def by_provider_id(self, provider: str, provider_instance_id: str) -> Instance | None:
        """The row of a machine the cloud names."""
        ...

    def whose(self, provider: str, provider_instance_id: str) -> tuple[UUID, UUID | None] | None:
        """(instance, job) of the same row, which is not loaded: a lock would find it outdated."""
        ...

    def holder_of(self, credential_hash: str) -> tuple[UUID, UUID | None] | None:
        """(instance, job) of a credential: nothing is loaded that a lock would find outdated."""
        ...

    def add(self, instance: Instance) -> None:
        """Store a new instance."""
        ...

    def due_terminations(self, now: datetime, limit: int) -> list[tuple[UUID, UUID | None]]:
        """(instance, job) of unleased instances to be given back, earliest first; not locked."""
        ...

    def next_termination_at(self) -> datetime | None:
        """When the first termination is due."""
        ...

    def due_descriptions(
        self, now: datetime, limit: int
    ) -> list[tuple[UUID, UUID | None, str, str, str]]:
        """(instance, job, provider, region, provider's id) whose next look is due; not locked."""
        ...

    def next_description_at(self) -> datetime | None:
        """When the first look is due."""
        ...

    def live_of_region(
        self, provider: str, region: str
    ) -> list[tuple[UUID, UUID | None, str | None]]:
        """(instance, job, provider's id) that should exist there, by id; not locked."""
        ...

    def lock(self, instance_id: UUID, *, skip_locked: bool = False) -> Instance | None:
        """The instance under its own row lock, read anew; for writers that no job's lock covers."""
        ...

    def billable(
        self, now: datetime, billing: Billing, limit: int
    ) -> list[tuple[UUID, UUID | None]]:
        """(instance, its job) where there is something to book or to close, earliest due first.

        A machine that runs is due each accrual period, one that ended at once, and again when its
        end has settled and its prices were asked for after it; a row that never ran, at once.
        Machines without a price at their start are not due (`unpriced`).
        """
        ...

    def next_billable_at(self, billing: Billing) -> datetime | None:
        """When the first of `billable` is due."""
        ...

    def unpriced(self, limit: int) -> list[Instance]:
        """Launched, not final, and no known price or billing rule at their start; by launch."""
        ...

    def last_unfinal_end_at(self, provider: str) -> datetime | None:
        """The latest end among the provider's machines whose bill waits to become final."""
        ...

    def live_of_project(self, project_id: UUID) -> list[Instance]:
        """Live instances of all jobs of a project, by request time then id."""
        ...

    def silent_ids(self, answered_before: datetime, limit: int) -> list[UUID]:
        """Registered instances not marked unreachable and not heard of since, by id."""
        ...

    def heard_again_ids(self, answered_after: datetime, limit: int) -> list[UUID]:
        """Instances marked unreachable that were heard of since, by id."""
        ...

    def contact(self, instance_id: UUID) -> Contact | None:
        """The newest report."""
        ...

    def add_contact(self, contact: Contact) -> None:
        """Store the first contact of an instance."""
        ...

    def assignments(self, instance_id: UUID) -> list[Assignment]:
        """Assignments, by start."""
        ...

    def add_assignment(self, assignment: Assignment) -> None:
        """Store a new assignment."""
        ...


class Operations(Protocol):
    """What the deployment knows of itself: its id and secret, stale results, hearing."""

    def hearing(self) -> Hearing:
        """Whether, and since when, agents could have been heard."""
        ...

    def deployment_secret(self) -> str:
        """Key from which credentials are derived."""
        ...

    def deployment_id(self) -> UUID:
        """Tag on every machine of this deployment."""
        ...

    def add_stale_result(
        self,
        record_id: UUID,
        at: datetime,
        controller: str,
        provider: str,
        provider_instance_ids: Sequence[str],
        detail: str,
    ) -> None:
        """Remember machines whose result came too late; the sweep looks for them."""
        ...

    def close_stale_results(self, provider: str, before: datetime) -> None:
        """A complete list was made after these: what they left behind has been met."""
        ...

    def try_single_flight(self, name: str) -> bool:
        """Take a transaction-long advisory lock; False when another holder has it."""
        ...
