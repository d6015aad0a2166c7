"""What evidence was gathered for: the job as it stood unlocked, and whether it still stands so.

Offers and expected costs are gathered while nothing is locked, which may take seconds. Under the
job's lock a controller compares. Where market, size, fence, transition or members have changed, it
drops the evidence and is rung again; offers that have grown old it reads anew. Not here: the
evidence (`evaluate_markets`, `offer_book`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from app.domain.lifecycle.entities import Job
from app.domain.market.offer import Market
from app.orchestration.frame.aggregate import JobAggregate
from app.storage.unit_of_work import UnitOfWork

OFFERS_OLD_SECONDS = 2.0
"""Offers are read for all jobs of a round at once; a job whose turn is later reads them anew."""


def offers_are_old(read_at: datetime, now: datetime) -> bool:
    """Whether a decision must not rest on them any more."""
    return (now - read_at).total_seconds() > OFFERS_OLD_SECONDS


@dataclass(frozen=True, slots=True)
class EvidenceBasis:
    """A job's gang at one instant.

    market, node_count: of its next machines; with them a change of market or size that is under
    way. next_fence: it grows with each attempt. moving_launch_id, moving_until_at: of a move that
    is under way. members: machines of the live attempt.
    """

    market: Market
    node_count: int
    next_fence: int
    moving_launch_id: UUID | None = None
    moving_until_at: datetime | None = None
    members: frozenset[UUID] = frozenset()

    def holds_for(self, aggregate: JobAggregate) -> bool:
        """Whether the job, now locked, is what the evidence was gathered for."""
        return self == _basis(aggregate.job, {one.instance_id for one in aggregate.members})


def read_basis(uow: UnitOfWork, job: Job) -> EvidenceBasis:
    """The job as it stands unlocked."""
    attempt = uow.attempts.live(job.id)
    members = [] if attempt is None else uow.attempts.members(attempt.id)
    return _basis(job, {one.instance_id for one in members})


def _basis(job: Job, members: set[UUID]) -> EvidenceBasis:
    return EvidenceBasis(
        job.market_mode,
        job.node_count,
        job.next_fence,
        job.moving_launch_id,
        job.moving_until_at,
        frozenset(members),
    )
