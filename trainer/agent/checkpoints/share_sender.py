"""Uploads this machine's shares of what a gang saves together, as machine 0's orders say.

One thread uploads, another looks for orders and gives signs of life. A share that the supervisor
wants away (the trainer ends) goes without an order, under its own step. Not here: the writes and
their order (`send_share`), or the manifest, which is machine 0's (`publisher`).
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from trainer.agent.checkpoints.checkpoint_sync import Abandoned, PlaceTaken
from trainer.agent.checkpoints.outbox import Outbox, read_folder_facts
from trainer.agent.checkpoints.send_share import Uploaded, record_loss, send_share
from trainer.agent.checkpoints.storage_root import (
    KeyExists,
    NoSuchKey,
    StorageRoot,
    StoreUnavailable,
)
from trainer.agent.rules.actions import PublishCheckpoint
from trainer.agent.rules.agent_state import LocalCheckpoint
from trainer.agent.rules.observations import (
    CheckpointReady,
    Observation,
    PublicationFailed,
    ShareSent,
    TrainerExited,
)
from trainer.protocol.checkpoint_shares import ShareOrder, life_key, order_key
from trainer.protocol.wire import WireError, decode

LOOK_SECONDS = 0.25
LIFE_SECONDS = 5.0
RETRY_SECONDS = 2.0
LISTENS_SECONDS = 300.0
LISTENS_EVERY_SECONDS = 1.0
"""What was answered may be asked for once more, in another place; and at the end what this machine
never had."""


@dataclass(frozen=True)
class _Job:
    """`checkpoint` None: an order for what this machine will never have."""

    order: ShareOrder
    checkpoint: LocalCheckpoint | None
    asked: bool


class ShareSender:
    """For one attempt, on machine `machine` of its gang (not 0)."""

    def __init__(
        self,
        open_store: Callable[[], StorageRoot],
        outbox: Outbox,
        fence: int,
        machine: int,
        observe: Callable[[Observation], None],
        say: Callable[[str], None],
        life_seconds: float = LIFE_SECONDS,
    ) -> None:
        """life_seconds: so often it says that a share which is asked for is still on its way."""
        self._life_seconds = life_seconds
        self._open_store = open_store
        self._outbox = outbox
        self._fence = fence
        self._machine = machine
        self._observe = observe
        self._say = say
        self._held: dict[int, LocalCheckpoint] = {}
        self._uploaded: Uploaded = {}
        self._uploaded_of: ShareOrder | None = None
        self._wanted: PublishCheckpoint | None = None
        self._asked: ShareOrder | None = None
        self._number = 0
        self._answered: ShareOrder | None = None
        self._newest_save = 0
        self._alive_at_place = (0, 0)
        self._alive = 0
        self._is_trainer_gone = False
        self._stirred_at = time.monotonic()
        self._store: StorageRoot | None = None
        self._closed = False
        self._changed = threading.Condition()
        for work, name in ((self._run, "shares"), (self._watch, "share-orders")):
            threading.Thread(target=work, name=name, daemon=True).start()

    def see(self, observation: Observation) -> None:
        """Look on at what the trainer's watcher observes, before the supervisor is told."""
        with self._changed:
            match observation:
                case CheckpointReady(self._fence, checkpoint) if checkpoint.save:
                    self._held[checkpoint.save] = checkpoint
                    self._newest_save = max(self._newest_save, checkpoint.save)
                case TrainerExited(self._fence):
                    self._is_trainer_gone = True
            if self._newest_save or self._is_trainer_gone:  # a command may save without shares
                self._stirred_at = time.monotonic()
            self._changed.notify_all()

    def submit(self, order: PublishCheckpoint) -> None:
        """Upload this share even if nobody asks for it."""
        with self._changed:
            self._wanted = order
            self._changed.notify_all()

    def close(self) -> None:
        """Abandon what is under way and end the threads."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    # --- what is to be done ---

    def _next_job(self) -> _Job | None:
        """What was asked for goes before what was not. Called with the lock held."""
        asked = self._asked
        if asked is not None and asked != self._answered:
            checkpoint = self._held.get(asked.save)
            if checkpoint is not None:
                return _Job(asked, checkpoint, asked=True)
            if self._newest_save > asked.save or self._is_trainer_gone:
                return _Job(asked, None, asked=True)
        if self._wanted is None:
            return None
        checkpoint = self._wanted.checkpoint
        order = ShareOrder(self._fence, checkpoint.step, checkpoint.save)
        if asked is not None and asked.save == checkpoint.save:
            order = asked  # answered by now: done again, it only says so
        return _Job(order, checkpoint, asked=False)

    def _is_abandoned(self, job: _Job) -> bool:
        """Another share has become more urgent, or another place of this one."""
        with self._changed:
            first = self._next_job()
            return self._closed or (first is not None and not _is_same(first.order, job.order))

    def _leaves_out(self, job: _Job) -> bool:
        asked = self._asked
        return asked is not None and asked.leave_out and _is_same(asked, job.order)

    # --- the uploads ---

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._next_job() is not None)
                job = self._next_job()
                if self._closed or job is None:
                    return
            problem = self._carry_out(job)
            if problem is not None and job.asked:
                with self._changed:
                    self._changed.wait_for(lambda: self._closed, RETRY_SECONDS)

    def _carry_out(self, job: _Job) -> str | None:
        """Do it and tell; the sentence of what is worth another try, or None."""
        folder, checkpoint = None, job.checkpoint
        try:
            store = self._opened()
            if checkpoint is not None:
                folder = self._outbox.take(checkpoint.key)
            if folder is None or checkpoint is None:
                problem = "it was not written, or newer ones have replaced it"
                record_loss(store, job.order, self._machine, problem)
                self._ended(job)
                return None
            send_share(
                store,
                folder,
                read_folder_facts(folder).optional,
                job.order,
                self._machine,
                self._uploaded_for(job.order),
                lambda: self._leaves_out(job),
                lambda: self._is_abandoned(job),
            )
        except Abandoned:
            return None
        except PlaceTaken as error:
            # Told in its record: machine 0 asks for another place.
            with self._changed:
                self._answer(job)
            return None if job.asked else self._failed(job, str(error))
        except (StoreUnavailable, NoSuchKey, OSError) as error:
            return self._failed(job, str(error))
        except Exception as error:
            # A thread that dies without a word, while the other one says that all is well.
            return self._failed(job, f"{type(error).__name__}: {error}")
        else:
            self._ended(job, sent=True)
            return None
        finally:
            if checkpoint is not None:
                self._outbox.give_back(checkpoint.key, done=False)

    def _ended(self, job: _Job, sent: bool = False) -> None:
        checkpoint = job.checkpoint
        with self._changed:
            closed = self._closed
            self._answer(job)
            if self._wanted is not None and self._wanted.checkpoint == checkpoint:
                self._wanted = None
            if sent:
                self._held = {
                    save: each for save, each in self._held.items() if save >= job.order.save
                }
        if closed or checkpoint is None:
            return
        if sent:
            share = f"this machine's share of the checkpoint of step {checkpoint.step:,}"
            self._say(f"{share} is stored")
            self._observe(ShareSent(self._fence, checkpoint))
        else:
            self._observe(PublicationFailed(self._fence, checkpoint, "it is gone", hopeless=True))

    def _answer(self, job: _Job) -> None:
        """Called with the lock held."""
        self._stirred_at = time.monotonic()
        if self._asked == job.order:
            self._answered = job.order

    def _failed(self, job: _Job, problem: str) -> str | None:
        checkpoint = job.checkpoint
        with self._changed:
            if not job.asked:
                self._wanted = None
            closed = self._closed
        if checkpoint is None or closed:
            return problem
        self._say(f"this machine's share of step {checkpoint.step:,} is not stored: {problem}")
        if not job.asked:
            self._observe(PublicationFailed(self._fence, checkpoint, problem))
        return problem

    def _uploaded_for(self, order: ShareOrder) -> Uploaded:
        """What of this save is in the store; another save's files may have the same keys."""
        if self._uploaded_of is None or not _is_same(self._uploaded_of, order):
            self._uploaded_of, self._uploaded = order, {}
        return self._uploaded

    # --- the orders ---

    def _watch(self) -> None:
        """Only while there is something that may be asked for, or was lately."""
        known: ShareOrder | None = None
        alive_at = 0.0
        while self._wait_to_look():
            # Whatever goes wrong: without this thread no share would ever be asked for again.
            with suppress(Exception):
                store = self._opened()
                self._look_for_orders(store)
                asked, now = self._unanswered(), time.monotonic()
                if asked != known:  # heard: said soon, unless it is answered before
                    known, alive_at = asked, now - 0.8 * self._life_seconds
                if asked is not None and now >= alive_at + self._life_seconds:
                    alive_at = now
                    self._say_alive(store, asked)

    def _say_alive(self, store: StorageRoot, asked: ShareOrder) -> None:
        """One more sign; those of an earlier order for the same share are there already."""
        place = asked.step, asked.save
        if place != self._alive_at_place:
            self._alive_at_place, self._alive = place, 0
        self._alive += 1
        with suppress(KeyExists):
            store.put_new(life_key(asked, self._machine, self._alive), b"{}")

    def _wait_to_look(self) -> bool:
        """Until it is time to look for orders; False when it never will be again."""

        def is_pressing() -> bool:
            return self._closed or self._is_pressing()

        with self._changed:
            if not self._changed.wait_for(is_pressing, LISTENS_EVERY_SECONDS):
                listens = time.monotonic() < self._stirred_at + LISTENS_SECONDS
                self._changed.wait_for(lambda: listens or is_pressing())
            self._changed.wait_for(lambda: self._closed, LOOK_SECONDS)
            return not self._closed

    def _unanswered(self) -> ShareOrder | None:
        with self._changed:
            return self._asked if self._asked != self._answered else None

    def _is_pressing(self) -> bool:
        """Whether an order is open, or there is something newer to ask for. Called with the lock
        held.
        """
        newest = self._asked.save if self._asked is not None else 0
        return self._asked != self._answered or self._newest_save > newest

    def _opened(self) -> StorageRoot:
        if self._store is None:
            self._store = self._open_store()
        return self._store

    def _look_for_orders(self, store: StorageRoot) -> None:
        """Up to the newest one; those between are not wanted any more."""
        while not self._closed:
            try:
                content = store.get(order_key(self._fence, self._number + 1))
            except NoSuchKey:
                return
            self._number += 1
            with suppress(WireError, ValueError):
                order = decode(ShareOrder, json.loads(content))
                with self._changed:
                    self._asked = order
                    self._changed.notify_all()


def _is_same(one: ShareOrder, other: ShareOrder) -> bool:
    """Whether both want the same files in the same place."""
    return (one.save, one.step) == (other.save, other.step)
