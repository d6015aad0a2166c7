"""What a machine does with the object store: restore before an attempt, publish during it.

The order of reads and writes is the agent's own (`checkpoint_restore`, `checkpoint_sync`); only
the time they take is simulated. Not here: the store (`memory_store`) or when to publish
(`trainer.agent.rules.attempt_ending`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from app.simulation.engine.event_loop import Event, EventLoop
from app.simulation.engine.invariant_error import InvariantError
from app.simulation.engine.memory_store import JobStore
from app.simulation.engine.seeded_entropy import Dice
from trainer.agent.checkpoints.checkpoint_restore import RestoreFailed, Restorer
from trainer.agent.checkpoints.checkpoint_sync import (
    CommitForbidden,
    CutOff,
    PlaceTaken,
    PublishOrder,
    publish,
)
from trainer.agent.checkpoints.storage_root import NoSuchKey, StoreUnavailable
from trainer.agent.rules.actions import PublishCheckpoint
from trainer.agent.rules.observations import (
    CheckpointPublished,
    FencedOff,
    Observation,
    PhaseEntered,
    PreparationFailed,
    Prepared,
    PublicationFailed,
)
from trainer.protocol.agent_report import MachinePhase
from trainer.protocol.checkpoint_manifest import FenceRecord, fence_key
from trainer.protocol.directive import Directive
from trainer.protocol.wire import decode

_RECORD_WAIT_SECONDS = 120.0
_NOWHERE = Path("/nonexistent")


class Lineage:
    """One machine's hands on its job's store."""

    def __init__(
        self,
        store: JobStore,
        loop: EventLoop,
        dice: Dice,
        observe: Callable[[Observation], None],
        may_commit: Callable[[int], bool],
        has_lease: Callable[[], bool],
        uptime: Callable[[], float],
        instance_id: str,
    ) -> None:
        self._store = store
        self._loop = loop
        self._dice = dice
        self._observe = observe
        self._may_commit = may_commit
        self._has_lease = has_lease
        self._uptime = uptime
        self._instance_id = instance_id
        self._preparation: Event | None = None
        self._publication: Event | None = None

    def prepare(self, directive: Directive) -> None:
        """Setup, then restore; answered with Prepared or PreparationFailed."""
        self.cancel()
        waits_until = self._loop.clock.elapsed_seconds + _RECORD_WAIT_SECONDS
        seconds = self._dice.uniform(5.0, 45.0)
        self._preparation = self._loop.after(
            seconds, lambda: self._restore(directive, waits_until + seconds)
        )

    def cancel_preparation(self) -> None:
        """Nothing more is said of it."""
        if self._preparation is not None:
            self._preparation.cancel()

    def cancel(self) -> None:
        """Stop everything under way."""
        self.cancel_preparation()
        if self._publication is not None:
            self._publication.cancel()

    def publish(self, order: PublishCheckpoint) -> None:
        """Upload, then commit; a newer order abandons the one under way."""
        if self._publication is not None:
            self._publication.cancel()
        seconds = self._dice.uniform(*self._store.upload_seconds) if order.checkpoint.key else 0.5
        self._publication = self._loop.after(seconds, lambda: self._commit(order))

    def _restore(self, directive: Directive, waits_until: float) -> None:
        fence, rank = directive.fence or 0, directive.node_rank or 0
        self._observe(PhaseEntered(fence, MachinePhase.RESTORE, self._uptime()))
        if rank != 0 and not self._recorded(fence):
            if self._loop.clock.elapsed_seconds > waits_until:
                self._fail(fence, "rank 0 did not record the start in time")
            else:
                self._preparation = self._loop.after(
                    2.0, lambda: self._restore(directive, waits_until)
                )
            return
        restorer = Restorer(
            self._store,
            fence,
            self._instance_id,
            _NOWHERE,
            lambda: False,
            lambda _sentence: None,
            record_wait_seconds=0.0,
        )
        try:
            restored = restorer.restore(rank)
        except CutOff as error:
            self._fail(fence, str(error))
            return
        except (RestoreFailed, StoreUnavailable) as error:
            self._fail(fence, str(error), store=isinstance(error, StoreUnavailable))
            return
        if rank == 0:
            self._check_record(fence)
        port = 20_001 if rank == 0 else None
        self._observe(Prepared(fence, restored.parent, port, restored.final))

    def _recorded(self, fence: int) -> bool:
        try:
            self._store.get(fence_key(fence))
        except (NoSuchKey, StoreUnavailable):
            return False
        return True

    def _check_record(self, fence: int) -> None:
        """Rank 0's own machine has recorded the start, or another one has this fence too."""
        record = decode(FenceRecord, json.loads(self._store.get(fence_key(fence))))
        if record.instance_id != self._instance_id:
            raise InvariantError("a fence is given once", f"{fence}, to {record.instance_id}, too")

    def _fail(self, fence: int, message: str, store: bool = False) -> None:
        self._observe(PreparationFailed(fence, "restore", message, store))

    def _commit(self, order: PublishCheckpoint) -> None:
        checkpoint, fence = order.checkpoint, order.fence
        try:
            manifest = publish(
                self._store,
                PublishOrder(
                    fence=fence,
                    step=checkpoint.step,
                    parent=order.parent,
                    final=checkpoint.final,
                ),
                lambda: self._may_commit(fence),
                lambda: False,
            )
        except CutOff as error:
            self._observe(FencedOff(fence, error.by_fence))
        except (StoreUnavailable, PlaceTaken, CommitForbidden) as error:
            self._observe(PublicationFailed(fence, checkpoint, str(error)))
        else:
            if not self._has_lease():
                raise InvariantError("nothing is committed after the lease", str(manifest.ref))
            self._observe(
                CheckpointPublished(
                    fence, checkpoint, manifest.ref, manifest.size_bytes, manifest.final
                )
            )
