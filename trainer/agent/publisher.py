"""Publishes one checkpoint at a time in a thread of its own; a newer order abandons the older.

Not here: the order of writes (`checkpoint_sync`) and the choice of checkpoint (`attempt_ending`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from trainer.agent.actions import PublishCheckpoint
from trainer.agent.checkpoint_sync import (
    Abandoned,
    CommitForbidden,
    CutOff,
    PlaceTaken,
    PublishOrder,
    publish,
)
from trainer.agent.object_store import ObjectMissing, ObjectStore, StoreUnavailable
from trainer.agent.observations import (
    CheckpointPublished,
    FencedOff,
    Observation,
    PublicationFailed,
)
from trainer.agent.outbox import FolderFacts, Outbox, read_folder_facts


class Publisher:
    """For one attempt. `may_commit` is asked right before each manifest."""

    def __init__(
        self,
        open_store: Callable[[], ObjectStore],
        outbox: Outbox,
        world_size: int,
        may_commit: Callable[[], bool],
        observe: Callable[[Observation], None],
        say: Callable[[str], None],
    ) -> None:
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
                ),
                self._may_commit,
                lambda: self._wanted is not order or self._closed,
            )
        except Abandoned:
            done = True
            return None
        except CutOff as error:
            self._say(str(error))
            return FencedOff(order.fence, error.by_fence)
        except (StoreUnavailable, ObjectMissing, PlaceTaken, CommitForbidden, OSError) as error:
            self._say(f"the checkpoint of step {checkpoint.step} is not published: {error}")
            return PublicationFailed(order.fence, checkpoint, str(error))
        else:
            done = True
            self._say(f"checkpoint of step {manifest.step} is committed")
            return CheckpointPublished(
                order.fence,
                checkpoint,
                manifest.ref,
                manifest.size_bytes,
                manifest.final,
                manifest.metrics,
            )
        finally:
            if checkpoint.key:
                self._outbox.give_back(checkpoint.key, done)
