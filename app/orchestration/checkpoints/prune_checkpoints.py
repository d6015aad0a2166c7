"""Delete checkpoints that are neither among the newest, nor the best, nor a parent, nor the last.

Lives here: the choice and the controller. A new checkpoint makes its job due (`prune_at`).
Deleting is idempotent, so it takes no lease: two workers at once delete the same things. Not here:
local copies on machines (the trainer's own).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from app.domain.lifecycle.best_checkpoint import Scored, best_of, metric_of
from app.domain.lifecycle.entities import Attempt, CheckpointRecord
from app.domain.spec.job_spec import parse_spec
from app.orchestration.agents.register_agent import checkpoint_uri
from app.orchestration.frame.controller_frame import RuntimeController
from app.orchestration.frame.lost_rows import fences_with_parents, forgotten_parents
from app.ports.object_store import ObjectStoreError
from app.storage.unit_of_work import UnitOfWork
from trainer.protocol.checkpoint_manifest import data_prefix, manifest_key

PRUNE_CONTROLLER = "prune_checkpoints"
_VICTIMS_MAX = 200


@dataclass(frozen=True)
class Pruning:
    """What to delete below one job's checkpoint address: (fence, step) pairs.

    known_fences: attempts whose parents the rows know. again_at: when the job is looked at again,
    should this come to nothing.
    """

    job_id: UUID
    uri: str
    victims: tuple[tuple[int, int], ...]
    known_fences: frozenset[int]
    again_at: datetime


@dataclass(frozen=True)
class Pruned:
    """What is gone, and what stays because only the store knows whose parent it is."""

    gone: tuple[tuple[int, int], ...] = ()
    spared: tuple[tuple[int, int], ...] = ()


class PruneCheckpoints(RuntimeController):
    """The controller that keeps the store from growing without bound."""

    name = PRUNE_CONTROLLER
    limit = 20

    def select(self, uow: UnitOfWork, limit: int) -> list[Pruning]:
        """Jobs with new checkpoints, as far as they have more than they asked to keep."""
        work = []
        for job_id in uow.jobs.due_pruning_ids(uow.now, limit):
            job = uow.jobs.lock(job_id, skip_locked=True)
            if job is None:
                continue
            spec = parse_spec(job.spec)
            standing = uow.jobs.standing_checkpoints(job_id)
            attempts = uow.attempts.of_job(job_id)
            victims = spare_checkpoints(standing, attempts, spec.checkpoint.keep, metric_of(spec))[
                :_VICTIMS_MAX
            ]
            job.prune_at = None
            if victims:
                again_at = job.prune_at = uow.now + timedelta(seconds=self.period_seconds)
                uri = checkpoint_uri(job, spec, self._runtime)
                known = fences_with_parents(attempts)
                work.append(Pruning(job_id, uri, victims, known, again_at))
        return work

    def effect(self, work: Pruning) -> Pruned:
        """Delete each manifest before its data: what has no manifest is no checkpoint.

        A restored database may not know an attempt, or where it starts from; its record does.
        """
        pruned: list[tuple[int, int]] = []
        spared: tuple[tuple[int, int], ...] = ()
        try:
            store = self._runtime.store_at(work.uri)
            parents = forgotten_parents(store, work.known_fences)
            spared = tuple(place for place in work.victims if place in parents)
            for fence, step in work.victims:
                if (fence, step) in parents:
                    continue
                store.delete(manifest_key(fence, step))
                for key in list(store.list_keys(data_prefix(fence, step))):
                    store.delete(key)
                pruned.append((fence, step))
        except ObjectStoreError:
            # The store is away: what was deleted is written down, the rest is tried at `again_at`.
            pass
        return Pruned(tuple(pruned), spared)

    def apply(self, uow: UnitOfWork, work: Pruning, result: Pruned) -> None:
        """Write down what is gone; look again at once when there may be more."""
        job = uow.jobs.lock(work.job_id)
        if job is None:
            return
        for point in uow.jobs.standing_checkpoints(work.job_id):
            if (point.fence, point.step) in result.gone:
                point.pruned_at = uow.now
        done = len(result.gone) + len(result.spared) == len(work.victims)
        if job.prune_at == work.again_at and done:
            more = len(work.victims) == _VICTIMS_MAX and bool(result.gone)
            job.prune_at = uow.now if more else None

    def next_due(self, uow: UnitOfWork) -> datetime | None:
        """When the first job is to be looked at."""
        return uow.jobs.next_pruning_at()


def spare_checkpoints(
    checkpoints: Sequence[CheckpointRecord], attempts: Iterable[Attempt], keep: int, metric: str
) -> tuple[tuple[int, int], ...]:
    """(fence, step) of those to delete: all but the newest `keep`, the best and recorded parents.

    checkpoints: those that stand and are not final. metric: the score that decides which is best.
    """
    kept = {(attempt.parent_fence, attempt.parent_step) for attempt in attempts}
    best = best_of((Scored(one.fence, one.step, one.metrics) for one in checkpoints), metric)
    if best is not None:
        kept.add((best.fence, best.step))
    standing = sorted(((point.fence, point.step) for point in checkpoints), reverse=True)
    return tuple(place for place in standing[keep:] if place not in kept)
