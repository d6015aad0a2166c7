"""The estimate of each job, made before its first machine, and what came of it.

Not here: making one (`app.domain.what_if`) and judging many (`app.domain.calibration`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from app.domain.calibration import Borne


@dataclass(frozen=True)
class KeptEstimate:
    """Figures of the product's own way to rent; all None where nothing could be said.

    `finish_*_seconds` are None where the job might never end.
    """

    job_id: UUID
    made_at: datetime
    cost_p50_microusd: int | None = None
    cost_p90_microusd: int | None = None
    finish_p50_seconds: float | None = None
    finish_p90_seconds: float | None = None
    deadline_chance: float | None = None
    budget_chance: float | None = None


class KeptEstimates(Protocol):
    """One row for each job."""

    def missing(self, limit: int) -> list[tuple[UUID, UUID, dict[str, Any]]]:
        """(job, its project, its stored spec) in the queue that have none yet, oldest first."""
        ...

    def keep(self, estimate: KeptEstimate) -> None:
        """Remember it, unless there is one."""
        ...

    def of(self, job_id: UUID) -> KeptEstimate | None:
        """A job's."""
        ...

    def borne(self, project_id: UUID, limit: int) -> list[Borne]:
        """Succeeded jobs of a project with an estimate and a final cost, newest first."""
        ...
