"""Delete checkpoints that are neither among the newest, nor a parent, nor the last one.

Lives here: the choice and the controller. Deleting is idempotent, so it takes no lease: two
workers at once delete the same things. Not here: local copies on machines (the trainer's own).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from app.domain.entities import Attempt, Checkpoint
from app.domain.job_spec import parse_spec
from app.orchestration.register_agent import checkpoint_uri
from app.orchestration.runtime import Runtime
from app.ports.object_store import ObjectStoreError
from app.ports.unit_of_work import UnitOfWork
from trainer.protocol.checkpoint_manifest import data_prefix, manifest_key

PRUNE_CONTROLLER = "prune_checkpoints"


@dataclass(frozen=True)
class Pruning:
    """What to delete below one job's checkpoint address: (fence, step) pairs."""

    job_id: UUID
    uri: str
    victims: tuple[tuple[int, int], ...]


class PruneCheckpoints:
    """The controller that keeps the store from growing without bound."""

    name = PRUNE_CONTROLLER
    queue = "cloud"
    limit = 20
    period_seconds = 30.0

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def lease(self, uow: UnitOfWork, limit: int) -> list[Pruning]:
        """Jobs that have more checkpoints than they asked to keep."""
        work = []
        for job_id in uow.jobs.with_spare_checkpoints(limit):
            job = uow.jobs.get(job_id)
            if job is None:
                continue
            spec = parse_spec(job.spec)
            victims = spare_checkpoints(
                uow.jobs.checkpoints(job_id), uow.attempts.of_job(job_id), spec.checkpoint.keep
            )
            if victims:
                uri = checkpoint_uri(job, spec, self._runtime)
                work.append(Pruning(job_id, uri, victims))
        return work

    def effect(self, work: Pruning) -> tuple[tuple[int, int], ...]:
        """Delete each manifest before its data: what has no manifest is no checkpoint."""
        pruned = []
        try:
            store = self._runtime.store_at(work.uri)
            for fence, step in work.victims:
                store.delete(manifest_key(fence, step))
                for key in list(store.list_keys(data_prefix(fence, step))):
                    store.delete(key)
                pruned.append((fence, step))
        except ObjectStoreError:
            # The store is away: what was deleted is written down, the rest has its turn later.
            pass
        return tuple(pruned)

    def apply(self, uow: UnitOfWork, work: Pruning, result: tuple[tuple[int, int], ...]) -> None:
        """Write down what is gone."""
        for point in uow.jobs.checkpoints(work.job_id):
            if (point.fence, point.step) in result and point.pruned_at is None:
                point.pruned_at = uow.now

    def next_due(self, uow: UnitOfWork) -> datetime | None:
        """At once while a job has too many; the last failure is retried at the period."""
        return uow.now if uow.jobs.with_spare_checkpoints(1) else None


def spare_checkpoints(
    checkpoints: Iterable[Checkpoint], attempts: Iterable[Attempt], keep: int
) -> tuple[tuple[int, int], ...]:
    """(fence, step) of those to delete: all but the newest `keep`, recorded parents, final ones."""
    parents = {(attempt.parent_fence, attempt.parent_step) for attempt in attempts}
    standing = sorted(
        (point for point in checkpoints if point.pruned_at is None),
        key=lambda point: (point.fence, point.step),
        reverse=True,
    )
    return tuple(
        (point.fence, point.step)
        for point in standing[keep:]
        if not point.final and (point.fence, point.step) not in parents
    )
