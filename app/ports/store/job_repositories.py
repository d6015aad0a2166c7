"""What the rules may ask of the store about jobs, attempts and launches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from app.domain.lifecycle.entities import Attempt, AttemptMember, CheckpointRecord, Job, Launch
from app.domain.market.offer import Market
from app.ports.store.job_submission import KnownJob, Submission
from app.ports.store.money_store import Payer


@dataclass(frozen=True)
class EventRecord:
    """One line of a job's history."""

    job_id: UUID
    seq: int
    at: datetime
    actor: str
    kind: str
    noun: str
    noun_id: UUID | None
    from_state: str | None
    to_state: str | None
    message: str
    data: dict[str, Any]


@dataclass(frozen=True)
class PhaseRecord:
    """From `from_at` on, the machine was in this phase."""

    instance_id: UUID
    session_id: str
    fact_no: int
    job_id: UUID
    phase: str
    from_at: datetime
    fence: int | None
    step: int | None


@dataclass(frozen=True)
class QueuedJob:
    """A job that may be claimed, as it stands unlocked, with what its placement depends on.

    claimed_at: when its newest attempt began, if it had any.
    """

    job_id: UUID
    project_id: UUID
    budget_id: UUID
    spec: dict[str, Any]
    market_mode: Market
    node_count: int
    submitted_at: datetime
    deadline_at: datetime | None
    claimed_at: datetime | None = None


class Jobs(Protocol):
    """Jobs, their history and what is told of their training."""

    def submit(self, submission: Submission) -> bool:
        """Store a new job; False, and nothing stored, when its name or key is taken."""
        ...

    def known_job(self, project_id: UUID, idempotency_key: str) -> KnownJob | None:
        """The job that an idempotency key has made."""
        ...

    def taken_names(self, project_id: UUID, names: Sequence[str]) -> set[str]:
        """Which of the names are in use."""
        ...

    def lock(self, job_id: UUID, *, skip_locked: bool = False) -> Job | None:
        """The job under a row lock; None when absent, or locked elsewhere and skipped."""
        ...

    def get(self, job_id: UUID) -> Job | None:
        """The job without a lock."""
        ...

    def ready(self, now: datetime, limit: int, latest: datetime | None = None) -> list[QueuedJob]:
        """Claimable jobs in queue order: never looked at, or whose next look is due.

        latest: no look is set for later than that; one that is was set by a clock that went back.
        """
        ...

    def next_ready_at(self, latest: datetime | None = None) -> datetime | None:
        """When the first waiting job is to be looked at; the epoch when one is ready now.

        latest: as in `ready`.
        """
        ...

    def due_timer_ids(self, now: datetime, limit: int) -> list[UUID]:
        """Jobs whose `timer_at` has come, earliest first."""
        ...

    def next_timer_at(self) -> datetime | None:
        """The earliest `timer_at`."""
        ...

    def wait_together(
        self, job: Job, capacity_key: str, claimable_at: datetime, reason: str
    ) -> int:
        """Give every job that would be looked at for the same need the same verdict.

        Not those with machines on hold, which need fewer. Returns how many.
        """
        ...

    def promised_ids(self, now: datetime, latest: datetime, limit: int) -> list[UUID]:
        """Live jobs with a deadline whose slack is to be looked at, by id.

        latest: no look is set for later than that; one that is was set by a clock that ran ahead,
        and is due at once. So it is of every other look.
        """
        ...

    def next_promise_at(self, latest: datetime) -> datetime | None:
        """When the slack of the first such job is to be looked at; the epoch for a new one."""
        ...

    def movable_ids(self, now: datetime, latest: datetime, limit: int) -> list[UUID]:
        """Jobs on spot machines, or on their way to others, that are to be looked at, by id."""
        ...

    def next_move_at(self, latest: datetime) -> datetime | None:
        """When the first such job is to be looked at; the epoch for a new one."""
        ...

    def over_budget(self, limit: int) -> list[Payer]:
        """Jobs that work, or wait with machines, and have reached their own or project's cap."""
        ...

    def cost_closable_ids(self, limit: int) -> list[UUID]:
        """Ended jobs whose cost is open while the bills of all their instances are final, by id."""
        ...

    def add_event(self, event: EventRecord) -> None:
        """Append to the history."""
        ...

    def add_phase(self, phase: PhaseRecord) -> None:
        """Record a phase; a replayed one changes nothing."""
        ...

    def add_metric_points(
        self, job_id: UUID, fence: int, points: Sequence[tuple[int, datetime, dict[str, float]]]
    ) -> None:
        """Record (step, at, metrics); what a known step is told of besides joins its metrics."""
        ...

    def add_checkpoint(self, checkpoint: CheckpointRecord) -> bool:
        """Record a committed checkpoint; False when it was known."""
        ...

    def due_pruning_ids(self, now: datetime, limit: int) -> list[UUID]:
        """Jobs whose checkpoints are to be pruned now, earliest due first."""
        ...

    def next_pruning_at(self) -> datetime | None:
        """The earliest `prune_at`."""
        ...

    def standing_checkpoints(self, job_id: UUID) -> list[CheckpointRecord]:
        """Known checkpoints that are neither pruned nor final, by fence then step."""
        ...

    def final_checkpoints(self, job_id: UUID) -> list[tuple[int, int]]:
        """(fence, step) of known final checkpoints, in order."""
        ...

    def saved_starts(
        self, job_id: UUID, after_fence: int
    ) -> dict[int, tuple[int | None, int | None]]:
        """(parent's fence, parent's step) of each later attempt that saved a checkpoint."""
        ...


class Attempts(Protocol):
    """Attempts and their members."""

    def live(self, job_id: UUID) -> Attempt | None:
        """The one live attempt of a job."""
        ...

    def by_fence(self, job_id: UUID, fence: int) -> Attempt | None:
        """The attempt with this number."""
        ...

    def of_job(self, job_id: UUID) -> list[Attempt]:
        """All attempts, by fence."""
        ...

    def ordinals(self, job_id: UUID) -> dict[int, int]:
        """Which one of the job's attempts each is, from 1, by fence."""
        ...

    def members(self, attempt_id: UUID) -> list[AttemptMember]:
        """Members, by node rank."""
        ...

    def start_ups(self, work_digest: str) -> list[tuple[UUID, float]]:
        """(job, seconds from its process's start to the end of its first step) of ended attempts
        of this work that were measured; the newest first, bounded."""
        ...

    def outlook_due(self, now: datetime, latest: datetime, limit: int) -> list[UUID]:
        """Jobs whose attempt prepares or trains and has its `outlook_at` behind it, by id."""
        ...

    def next_outlook_at(self, latest: datetime) -> datetime | None:
        """The earliest `outlook_at` of such attempts; the epoch for one not yet looked at."""
        ...

    def size_look_due(self, now: datetime, latest: datetime, limit: int) -> list[UUID]:
        """Jobs whose attempt trains and has its `size_look_at` behind it, earliest first."""
        ...

    def next_size_look_at(self, latest: datetime) -> datetime | None:
        """The earliest `size_look_at` of such attempts."""
        ...

    def add(self, attempt: Attempt) -> None:
        """Store a new attempt."""
        ...

    def add_member(self, member: AttemptMember) -> None:
        """Store a new member."""
        ...

    def remove_member(self, member: AttemptMember) -> None:
        """Take a member out (an instance that never came)."""
        ...


class Launches(Protocol):
    """Launches and the instances they ask for."""

    def get(self, launch_id: UUID) -> Launch | None:
        """The launch."""
        ...

    def by_token_hash(self, token_hash: str) -> Launch | None:
        """The launch whose one-time registration token has this hash."""
        ...

    def boot_reports(self, launch: Launch, at_most: int) -> int:
        """How many lines of its job's history tell of its machines' boots; counts to `at_most`."""
        ...

    def open_of_job(self, job_id: UUID) -> list[Launch]:
        """Launches the cloud still has to be asked about, by creation."""
        ...

    def due(self, now: datetime, limit: int) -> list[tuple[UUID, UUID]]:
        """(launch, job) of launches that are due and unleased, earliest first; not locked."""
        ...

    def next_due_at(self) -> datetime | None:
        """When the first launch is due."""
        ...

    def add(self, launch: Launch) -> None:
        """Store a new launch."""
        ...
