"""What people may read about jobs and machines: reports, never the base of a decision.

Not here: the queries (`job_read_models`), money (`money.cost_figures`), or what is shown of it
(`app.api`). Rows are mappings of JSON-ready values, under the names of their columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from app.domain.deployment.disk_full import free_bytes_when_full
from app.domain.lifecycle.entities import Attempt, Budget, Contact, Instance, Job
from app.domain.lifecycle.instance import InstanceState
from app.domain.wording.why_words import JobStanding, LastEnd, LiveAttempt

Row = Mapping[str, Any]


@dataclass(frozen=True)
class JobFilter:
    """Which jobs to list, newest first. `before`: the (submitted_at, id) the last page ended on.

    states: empty means all. name: a part of the name. labels: each must be there, with its value.
    ids: only these jobs; None means any.
    """

    project_id: UUID
    limit: int
    states: tuple[str, ...] = ()
    name: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    since: datetime | None = None
    before: tuple[datetime, UUID] | None = None
    ids: tuple[UUID, ...] | None = None


@dataclass(frozen=True, slots=True)
class MatchingJob:
    """A job that a filter finds."""

    id: UUID
    name: str
    submitted_at: datetime


@dataclass(frozen=True)
class MachineStatus:
    """A machine with its newest report and what an hour in its pool costs now.

    name: m1, m2, … in the order in which we learned that the cloud has started them; None before
    that.
    """

    instance: Instance
    contact: Contact | None
    price_microusd_per_hour: int | None
    name: str | None

    @property
    def has_full_disk(self) -> bool:
        """Whether its newest report says so."""
        contact = self.contact
        return contact is not None and free_bytes_when_full(contact.metrics) is not None

    @property
    def is_billed(self) -> bool:
        """Whether it costs money now: started, and not gone."""
        return self.instance.launched_at is not None and self.instance.ended_at is None


@dataclass(frozen=True)
class AttemptCounts:
    """How often it was tried. live: which one of them the live one is, from 1; None without."""

    attempts: int
    interruptions: int
    last_end: LastEnd | None
    live: int | None


@dataclass(frozen=True)
class LastCheckpoint:
    """The newest checkpoint that holds anything."""

    step: int
    committed_at: datetime


@dataclass(frozen=True)
class JobFacts:
    """Everything the page of a job is made of. `machines`: those that are not ended.

    replacing: what of them is on the way in place of lost ones, as in "replacing 1 of 2 in
    aws us-east-1a"; None for nothing. waived_microusd: what clouds did not charge for machines
    that they ended early, as in the report of its cost.
    """

    job: Job
    project_name: str
    budget: Budget
    counts: AttemptCounts
    attempt: Attempt | None
    machines: tuple[MachineStatus, ...]
    replacing: str | None
    last_checkpoint: LastCheckpoint | None
    waived_microusd: int

    @property
    def microusd_per_hour(self) -> int:
        """What all its machines cost in an hour now."""
        prices = (one.price_microusd_per_hour or 0 for one in self.machines if one.is_billed)
        return sum(prices)

    @property
    def standing(self) -> JobStanding:
        """What the reason of its state is made of, as `listed_jobs` reads it for many."""
        job, attempt = self.job, self.attempt
        here = [one for one in self.machines if one.instance.registered_at is not None]
        states = [one.instance.state for one in self.machines]
        return JobStanding(
            state=job.state,
            submitted_at=job.submitted_at,
            node_count=job.node_count,
            nodes=job.spec.get("nodes", job.node_count),
            committed_step=job.committed_step,
            wait_reason=job.wait_reason,
            end_message=job.end_message,
            ended_at=job.ended_at,
            stop_cause=job.stop_cause,
            stop_ordered_at=job.stop_ordered_at,
            last_end=self.counts.last_end,
            attempt=None
            if attempt is None
            else LiveAttempt(
                attempt.state, attempt.node_count, attempt.drain_cause, attempt.drain_until_at
            ),
            registered=tuple(one.instance.pool for one in here),
            interrupted=states.count(InstanceState.INTERRUPTING),
            disk_full=any(one.has_full_disk for one in self.machines),
            has_checkpoint=self.last_checkpoint is not None,
        )
