"""What a new job is made of, and what the store answers when it is handed in.

Lives here: the values that cross from the verb (`queue.submit_job`) to the store. Not
here: how they are decided (the verb) or written (`app.storage.jobs.submission_batch`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from app.domain.lifecycle.stored_documents import SpecSourcesDocument


@dataclass(frozen=True)
class Submission:
    """One field per stored value: the job, its own budget and its first event.

    spec_json: the normal form of the spec, JSON text. budget_microusd: None means no cap.
    owner_key_id, owner_person_id: the key and the person that submit it; None for none, as in a
    simulation. spec_sources: as `Job`.
    idempotency_digest: of the spec as asked, before its project gave it anything and before a name
    was made; None without a key. audit_id: of the row that says who submitted it, from where; None
    for none, as in a simulation.
    """

    job_id: UUID
    budget_id: UUID
    project_id: UUID
    name: str
    spec_json: str
    spec_digest: str
    priority: int
    node_count: int
    capacity_key: str
    market_mode: str
    submitted_at: datetime
    queue_rank_at: datetime
    deadline_at: datetime | None
    max_wait_at: datetime | None
    max_duration_seconds: int | None
    timer_at: datetime | None
    total_steps: int | None
    budget_microusd: int | None
    idempotency_key: str | None
    idempotency_digest: str | None
    actor: str
    message: str
    owner_key_id: UUID | None = None
    owner_person_id: UUID | None = None
    spec_sources: SpecSourcesDocument | None = None
    audit_id: UUID | None = None
    address: str | None = None
    request_id: str | None = None


@dataclass(frozen=True)
class KnownJob:
    """The job that an idempotency key has made already."""

    job_id: UUID
    name: str
    state: str
    submitted_at: datetime
    deadline_at: datetime | None
    idempotency_digest: str


@dataclass(frozen=True)
class Submitted:
    """The answer to a submission; `created` is False when its key had made the job before."""

    job_id: UUID
    name: str
    state: str
    submitted_at: datetime
    deadline_at: datetime | None
    created: bool
