"""Publishes one checkpoint at a time in a thread of its own; a newer order abandons the older.

Not here: the order of writes (`checkpoint_sync`) and the choice of checkpoint (`attempt_ending`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from trainer.agent.checkpoints.checkpoint_sync import Abandoned, CutOff, PublishOrder, publish
from trainer.agent.checkpoints.gather_shares import ShareGatherer, ShareLost, ShareMissing
from trainer.agent.checkpoints.outbox import FolderFacts, Outbox, read_folder_facts
from trainer.agent.checkpoints.storage_root import StorageRoot
from trainer.agent.rules.actions import PublishCheckpoint
from trainer.agent.rules.agent_state import LocalCheckpoint
from trainer.agent.rules.observations import (
    CheckpointPublished,
    FencedOff,
    Observation,
    PublicationFailed,
)
from trainer.protocol.checkpoint_manifest import CheckpointManifest


class Publisher:
    """For one attempt, on rank 0's machine. `may_commit` is asked right before each manifest."""

    def __init__(
        self,
        open_store: Callable[[], StorageRoot],
        outbox: Outbox,
        world_size: int,
        may_commit: Callable[[], bool],
        observe: Callable[[Observation], None],
        say: Callable[[str], None],
        shares: ShareGatherer | None = None,
    ) -> None:
        """shares: of the other machines, where a gang saves together."""
        self._shares = shares
        self._open_store = open_store
        self._outbox = outbox
        self._world_size = world_size
        self._may_commit = may_commit
        self._observe = observe
        self._say = say
        self._wanted: PublishCheckpoint | None = None
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="publisher", daemon=True)
        self._thread.start()

    def submit(self, order: PublishCheckpoint) -> None:
        """Publish this next; what is under way is abandoned before its manifest."""
        with self._changed:
            self._wanted = order
            self._changed.notify()

    def close(self) -> None:
        """Abandon what is under way and end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._wanted is not None or self._closed)
                if self._closed or self._wanted is None:
                    return
                order = self._wanted
            observation = self._publish(order)
            with self._changed:
                if self._wanted is order:
                    self._wanted = None
                closed = self._closed
            if observation is not None and not closed:
                self._observe(observation)

    def _publish(self, order: PublishCheckpoint) -> Observation | None:
        """The answer, or None when a newer order has taken its place."""
        checkpoint, folder, done = order.checkpoint, None, False
        try:
            if checkpoint.key:
                folder = self._outbox.take(checkpoint.key)
                if folder is None:
                    return PublicationFailed(order.fence, checkpoint, "the folder is gone")
            facts = read_folder_facts(folder) if folder else FolderFacts()
            manifest = publish(
                self._open_store(),
                PublishOrder(
                    fence=order.fence,
                    step=checkpoint.step,
                    folder=folder,
                    parent=order.parent,
                    final=checkpoint.final or facts.final,
                    world_size=facts.world_size or self._world_size,
                    metrics=facts.metrics,
                    leave_out=facts.optional if order.leave_out else frozenset(),
                    save=checkpoint.save,
                ),
                self._may_commit,
                lambda: self._wanted is not order or self._closed,
                self._shares,
            )
        except Abandoned:
            done = True
            return None
        except CutOff as error:
            self._say(str(error))
            return FencedOff(order.fence, error.by_fence)
        except Exception as error:
            # Whatever it is: a thread that died without a word would hold up the attempt's end.
            self._say(f"the checkpoint of step {checkpoint.step:,} is not published: {error}")
            lost, unheard = isinstance(error, ShareLost), isinstance(error, ShareMissing)
            return PublicationFailed(order.fence, checkpoint, str(error), lost, unheard)
        else:
            done = True
            self._say(
                f"checkpoint of step {manifest.step:,} is committed"
                if manifest.files
                else "the end of the work is recorded; no final checkpoint was saved"
            )
            return CheckpointPublished(
                order.fence,
                checkpoint,
                manifest.ref,
                manifest.size_bytes,
                manifest.final,
                manifest.metrics,
                self._sent_bytes(checkpoint, manifest),
            )
        finally:
            if checkpoint.key:
                self._outbox.give_back(checkpoint.key, done)

    def _sent_bytes(self, checkpoint: LocalCheckpoint, manifest: CheckpointManifest) -> int:
        others = self._shares.size_bytes if self._shares is not None and checkpoint.save else 0
        return manifest.size_bytes - others
