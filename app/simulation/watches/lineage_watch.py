"""Watches every write to the checkpoint store: who extends the lineage, and that it only grows.

Not here: the writing, which is the agent's own code (`simulated_lineage`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from app.simulation.engine.invariant_error import InvariantError
from trainer.protocol.checkpoint_manifest import (
    CheckpointRef,
    FenceRecord,
    load_manifest,
    parse_manifest_key,
)
from trainer.protocol.wire import decode


@dataclass
class _Chain:
    """One job's lineage as it counts now."""

    parents: dict[int, CheckpointRef | None] = field(default_factory=dict)
    head: CheckpointRef | None = None


class LineageWatch:
    """Called with every object that is created, after it was."""

    def __init__(self) -> None:
        self.chains: dict[str, _Chain] = {}
        self.manifests = 0
        self._rows_lost = False

    def rows_lost(self) -> None:
        """The database has gone back to a backup."""
        self._rows_lost = True

    def created(self, key: str, content: bytes) -> None:
        """Raises InvariantError."""
        job_id, _, rest = key.partition("/")
        chain = self.chains.setdefault(job_id, _Chain())
        if rest.startswith("fences/"):
            self._fence(job_id, chain, decode(FenceRecord, json.loads(content)))
        elif parse_manifest_key(rest) is not None:
            self.manifests += 1
            manifest = load_manifest(content)
            self._manifest(job_id, chain, manifest.ref, manifest.parent)

    def deleted(self, key: str) -> None:
        """Raises InvariantError where what counts is taken away."""
        job_id, _, rest = key.partition("/")
        chain, place = self.chains.setdefault(job_id, _Chain()), parse_manifest_key(rest)
        starts = list(chain.parents.items())
        if self._rows_lost:
            # Nobody knows of the attempts that were lost with their rows, but for the newest one.
            starts = sorted(starts)[-1:]
        needed = [chain.head, *(parent for _, parent in starts)]
        if place in [(one.fence, one.step) for one in needed if one is not None]:
            raise InvariantError(
                "no start of an attempt and no newest checkpoint is pruned", f"job {job_id}: {rest}"
            )

    def _fence(self, job_id: str, chain: _Chain, record: FenceRecord) -> None:
        newest = max(chain.parents, default=0)
        if record.fence <= newest:
            raise InvariantError(
                "fences only grow", f"job {job_id}: fence {record.fence} after {newest}"
            )
        if record.parent != chain.head:
            raise InvariantError(
                "the lineage step never falls",
                f"job {job_id}: attempt {record.fence} starts from {record.parent}, "
                f"but the lineage stands at {chain.head}",
            )
        chain.parents[record.fence] = record.parent

    def _manifest(
        self, job_id: str, chain: _Chain, ref: CheckpointRef, parent: CheckpointRef | None
    ) -> None:
        newest = max(chain.parents, default=0)
        if ref.fence != newest:
            raise InvariantError(
                "at most one fence can extend the lineage",
                f"job {job_id}: attempt {ref.fence} committed step {ref.step} "
                f"after attempt {newest} had begun",
            )
        if parent != chain.parents[ref.fence]:
            raise InvariantError(
                "a manifest names its attempt's start",
                f"job {job_id}: {ref} names {parent}, not {chain.parents[ref.fence]}",
            )
        if chain.head is not None and ref.step < chain.head.step:
            raise InvariantError(
                "the lineage step never falls",
                f"job {job_id}: step {ref.step} after step {chain.head.step}",
            )
        chain.head = ref
