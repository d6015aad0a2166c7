"""The estimate of each job, made as of its submission, and what came of it.

Not here: making one (`estimate.what_if`) and judging many (`estimate.calibration`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from app.domain.estimate.calibration import Borne


@dataclass(frozen=True)
class KeptEstimate:
    """Figures of the product's own way to rent; all None where nothing could be said.

    made_at: the moment that it was made for, and that its finish counts from. `finish_*_seconds`
    are None where the job might never end.
    """

    job_id: UUID
    made_at: datetime
    cost_p50_microusd: int | None = None
    cost_p90_microusd: int | None = None
    finish_p50_seconds: float | None = None
    finish_p90_seconds: float | None = None
    deadline_chance: float | None = None
    budget_chance: float | None = None


@dataclass(frozen=True)
class Unestimated:
    """A job without an estimate. asked_at: when it was last asked for in vain."""

    job_id: UUID
    project_id: UUID
    spec: dict[str, Any]
    submitted_at: datetime
    deadline_at: datetime | None
    asked_at: datetime | None = None


class KeptEstimates(Protocol):
    """One row for each job."""

    def missing(self, limit: int, now: datetime) -> list[Unestimated]:
        """Jobs that have none yet, and are not older than tells of their beginning; oldest first.

        A job that could not be estimated is told again after a while, if its spec says its work.
        """
        ...

    def next_try_at(self) -> datetime | None:
        """When a job that could not be estimated is due again."""
        ...

    def keep(self, estimate: KeptEstimate) -> bool:
        """Remember it, unless there are figures already.

        Waits for nobody: False, and nothing is written, while another transaction holds the job.
        """
        ...

    def of(self, job_id: UUID) -> KeptEstimate | None:
        """A job's."""
        ...

    def borne(self, project_id: UUID, limit: int) -> list[Borne]:
        """Succeeded jobs of a project with an estimate and a final cost, newest first."""
        ...
