"""Write into a job's history that its machines get no credentials for the store, and when again.

Not here: issuing them (`app.api.agents.grant_cache`).
"""

from __future__ import annotations

from uuid import UUID

from app.domain.lifecycle.events import Actor, ActorKind, JobEventKind
from app.domain.lifecycle.job import TERMINAL_JOB_STATES
from app.orchestration.frame.aggregate import open_job
from app.orchestration.frame.runtime import Runtime
from app.storage.unit_of_work import UnitOfWork

_SAID_MAX = 400


def record_storage_access(
    uow: UnitOfWork, runtime: Runtime, job_id: UUID, said: str | None
) -> None:
    """said: why none are issued; None once they are issued again."""
    actor = Actor(ActorKind.CONTROLLER, "storage_grants")
    with open_job(uow, runtime.entropy, job_id, actor) as aggregate:
        if aggregate is None or aggregate.job.state in TERMINAL_JOB_STATES:
            return
        if said is None:
            text = "The job's machines get object store credentials again."
            aggregate.record(JobEventKind.STORAGE_ACCESS_BACK, text)
            return
        aggregate.record(
            JobEventKind.STORAGE_ACCESS_FAILS,
            "No new object store credentials could be issued: "
            f"{said[:_SAID_MAX]}. The job's machines keep their current ones, which expire within "
            "an hour.",
        )
