"""What was measured of a spec's work in its project, read from rows.

Not here: which attempts did the same work (the port `pool_experience`), or what their paces say
(`app.domain.throughput.measured_work`).
"""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from app.domain.availability.hazard_by_age import EXPERIENCE_KEPT
from app.domain.spec.job_spec import JobSpec
from app.domain.throughput.measured_work import MeasuredWork, measured_work
from app.storage.unit_of_work import UnitOfWork


def read_measured(uow: UnitOfWork, project_id: UUID, spec: JobSpec, now: datetime) -> MeasuredWork:
    """What the newest runs of this work say of kinds of machine and of sizes of gang."""
    since = now - EXPERIENCE_KEPT
    return measured_work(uow.pool_experience.measured_runs(project_id, spec.to_json(), since))
