"""Call a job's cost final once it has ended and the bills of all its machines are final.

Not here: when a machine's bill is final (`accrue_costs`). A machine that turns up later opens the
job's cost again.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from app.orchestration.frame.controller_frame import RowController
from app.orchestration.money.accrue_costs import CLOSE_CONTROLLER
from app.storage.unit_of_work import UnitOfWork


@dataclass(frozen=True)
class ClosableJob:
    """An ended job that nothing is left to be booked for."""

    job_id: UUID


class CloseJobCosts(RowController[ClosableJob]):
    """The controller of final figures."""

    name = CLOSE_CONTROLLER
    limit = 100

    def select(self, uow: UnitOfWork, limit: int) -> list[ClosableJob]:
        """Ended jobs whose machines' bills are all final."""
        return [ClosableJob(job_id) for job_id in uow.jobs.cost_closable_ids(limit)]

    def next_due(self, uow: UnitOfWork) -> datetime | None:
        """Now, when a job can be closed; nothing here waits for time."""
        return uow.now if uow.jobs.cost_closable_ids(1) else None

    def apply(self, uow: UnitOfWork, work: ClosableJob, result: None) -> None:
        """Close one job's cost, having looked again under its lock."""
        with self.locked(uow, work.job_id) as aggregate:
            if aggregate is None:
                return
            job = aggregate.job
            machines = uow.instances.of_job(job.id, live_only=False)
            open_bills = any(instance.cost_final_at is None for instance in machines)
            if job.ended_at is not None and job.cost_final_at is None and not open_bills:
                job.cost_final_at = aggregate.now
                if machines:
                    # Kept, so that lists need not work it out again.
                    job.on_demand_comparison_microusd = uow.money.on_demand_comparison(job.id)
