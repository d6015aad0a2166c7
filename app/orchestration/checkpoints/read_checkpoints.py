"""Hand people the files of a committed checkpoint: its manifest, and pieces of its files.

Lives here also: which of a job's checkpoints is the best. Not here: which there are (the read
models), and how machines restore one (`trainer.agent.checkpoints.checkpoint_restore`).
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from app.domain.lifecycle.best_checkpoint import Scored, best_of, metric_of
from app.domain.spec.job_spec import JobSpec, parse_spec
from app.domain.units.errors import NotFound
from app.domain.wording.attempt_words import attempt_words
from app.orchestration.agents.register_agent import checkpoint_uri
from app.orchestration.frame.runtime import Runtime
from app.ports.object_store import ObjectMissing, ObjectStore
from app.storage.reports.job_read_models import CommittedCheckpointRow
from trainer.protocol.checkpoint_manifest import (
    CheckpointManifest,
    data_key,
    load_manifest,
    manifest_key,
    stays_inside,
)
from trainer.protocol.wire import WireError

PIECE_BYTES_MAX = 8 << 20


def best_standing(rows: Iterable[CommittedCheckpointRow], spec: JobSpec) -> tuple[int, int] | None:
    """(fence, step) of the best checkpoint of those that can be fetched; None without a score.

    rows: as the read models list a job's checkpoints.
    """
    standing = (row for row in rows if row["pruned_at"] is None and row["size_bytes"] > 0)
    scored = (Scored(row["fence"], row["step"], row["metrics"]) for row in standing)
    best = best_of(scored, metric_of(spec))
    return None if best is None else (best.fence, best.step)


def read_manifest(runtime: Runtime, job_id: UUID, fence: int, step: int) -> CheckpointManifest:
    """What the store says of a checkpoint. Raises NotFound when it is not there or damaged, and
    ObjectStoreError when the store does not answer.
    """
    store = _store_of(runtime, job_id)
    key = manifest_key(fence, step)
    try:
        return load_manifest(store.get(key))
    except ObjectMissing:
        raise NotFound(
            f"There is no checkpoint of step {step:,} of {_attempt(runtime, job_id, fence)}, or it "
            "was removed: older ones go as newer ones are saved (checkpoint.keep in the spec).",
            "step",
        ) from None
    except WireError as error:
        raise NotFound(
            f"The manifest of step {step:,} of {_attempt(runtime, job_id, fence)} cannot be read: "
            f"{error}.",
            "step",
        ) from error


def read_piece(
    runtime: Runtime, job_id: UUID, fence: int, step: int, name: str, offset: int, length: int
) -> bytes:
    """At most `length` (<= 8 MiB) bytes of one file from `offset` on; none at its end.

    Raises NotFound when the checkpoint has no such file, ObjectStoreError as above.
    """
    if not stays_inside(name):
        raise NotFound(f"No file of a checkpoint is called {name[:200]!r}.", "name")
    try:
        return _store_of(runtime, job_id).get_range(
            data_key(fence, step, name), offset, min(length, PIECE_BYTES_MAX)
        )
    except ObjectMissing:
        raise NotFound(
            f"Step {step:,} of {_attempt(runtime, job_id, fence)} has no file {name[:200]!r}, or "
            "not any more.",
            "name",
        ) from None


def _attempt(runtime: Runtime, job_id: UUID, fence: int) -> str:
    with runtime.begin() as uow:
        return attempt_words(uow.attempts.ordinals(job_id), fence)


def _store_of(runtime: Runtime, job_id: UUID) -> ObjectStore:
    with runtime.begin() as uow:
        job = uow.jobs.get(job_id)
    if job is None:
        raise NotFound("There is no such job.", "job")
    return runtime.store_at(checkpoint_uri(job, parse_spec(job.spec), runtime))
