"""The decisions about each job's machines, kept with their reasons.

Not here: their shape (`placement.placement_decision`), or making them (`app.orchestration`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

from app.domain.placement.placement_decision import DecisionVerdict, PlacementDecision


@dataclass(frozen=True)
class KeptDecision:
    """A decision and until when it was last found to hold.

    decision_no: counts from 1 within the job. `decision.decided_at` is when it was first made; its
    figures are those of `last_confirmed_at`.
    """

    job_id: UUID
    decision_no: int
    last_confirmed_at: datetime
    decision: PlacementDecision


class PlacementDecisions(Protocol):
    """One row for each decision that differs from the one before."""

    def record(self, job_id: UUID, decision: PlacementDecision) -> None:
        """Keep a decision of a job, whose row is locked.

        One with the outline of the job's newest only renews that one's figures and
        `last_confirmed_at`, so that a job that waits for days does not fill the table.
        """
        ...

    def latest(self, job_id: UUID) -> KeptDecision | None:
        """The newest one."""
        ...

    def latest_kind(self, job_id: UUID) -> tuple[DecisionVerdict, str] | None:
        """Verdict and reason of the newest one."""
        ...

    def of_job(self, job_id: UUID, limit: int) -> list[KeptDecision]:
        """The newest ones first."""
        ...
