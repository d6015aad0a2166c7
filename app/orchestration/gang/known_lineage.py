"""The lineage as far as agents have told of it: what counts, and whether the work is done.

Lives here: questions about the rows of checkpoints. The store stays the truth, and the order in
which it is read is `trainer.protocol.checkpoint_manifest.lineage_order`. Not here: restoring (the
agent's part), or deleting (`prune_checkpoints`).
"""

from __future__ import annotations

from app.orchestration.frame.aggregate import JobAggregate
from trainer.protocol.checkpoint_manifest import CheckpointRef, lineage_order


def has_final_checkpoint(aggregate: JobAggregate) -> bool:
    """Whether the lineage holds a final checkpoint."""
    if aggregate.job.next_fence == 1:
        return False  # no attempt has begun, so nothing can have been saved
    finals = aggregate.uow.jobs.final_checkpoints(aggregate.job.id)
    return any(is_in_lineage(aggregate, fence, step) for fence, step in finals)


def is_in_lineage(aggregate: JobAggregate, fence: int, step: int) -> bool:
    """Whether this checkpoint counts: no later attempt has begun before it, and left it aside.

    An attempt has begun when it has saved a checkpoint, or when the live one has said where it
    starts from.
    """
    starts = aggregate.uow.jobs.saved_starts(aggregate.job.id, fence)
    live = aggregate.attempt
    if live is not None and live.fence > fence and _has_chosen(aggregate):
        starts[live.fence] = (live.parent_fence, live.parent_step)
    if not starts:
        return True
    parents = {
        later: None if at is None or place is None else CheckpointRef(at, place, "")
        for later, (at, place) in starts.items()
    }
    known = [(fence, step), *((later, 0) for later in starts)]
    return (fence, step) in lineage_order(known, parents, aggregate.job.next_fence)


def _has_chosen(aggregate: JobAggregate) -> bool:
    """Whether rank 0 of the live attempt has said where it starts from."""
    return any(m.node_rank == 0 and m.prepared_at is not None for m in aggregate.members)
