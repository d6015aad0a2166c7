"""How much longer a job may wait for a clearly cheaper machine: since it last trained, or came.

Not here: what follows from it (`app.domain.placement.patience`).
"""

from __future__ import annotations

from app.domain.placement.gang_need import GangNeed
from app.domain.placement.patience import Patience
from app.orchestration.estimates.work_by_gpu import left_of
from app.orchestration.frame.aggregate import JobAggregate


def patience_of(aggregate: JobAggregate, gang: GangNeed) -> Patience:
    """The patience of a job that looks for this gang as a whole.

    Of a gang that trains it begins now.
    """
    job, now = aggregate.job, aggregate.now
    trained = [one for one in aggregate.uow.attempts.of_job(job.id) if one.trained_at is not None]
    since = job.submitted_at
    if trained:
        newest = max(trained, key=lambda one: one.fence)
        live = aggregate.attempt is not None and aggregate.attempt.fence == newest.fence
        since = now if live else newest.updated_at
    waited = max(0.0, (now - since).total_seconds())
    return Patience(
        left_seconds=max(0.0, aggregate.spec.patience_seconds - waited),
        waited_seconds=waited,
        work_seconds=left_of(aggregate, gang).seconds,
    )
