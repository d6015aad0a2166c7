"""Machines that save together, without trainers: their folders, outboxes and publishers, a store.

Not here: what is expected of them (tests/integration/checkpoints/test_agent_shares.py).
"""

from __future__ import annotations

import json
import queue
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.agent.fake_control_plane import wait_until
from trainer.agent.checkpoints.checkpoint_restore import Restorer, ResumePoint
from trainer.agent.checkpoints.gather_shares import ShareGatherer
from trainer.agent.checkpoints.outbox import ASKED_WITHIN_SECONDS, Outbox
from trainer.agent.checkpoints.publisher import Publisher
from trainer.agent.checkpoints.share_sender import ShareSender
from trainer.agent.checkpoints.storage_root import StorageRoot
from trainer.agent.rules.actions import PublishCheckpoint
from trainer.agent.rules.agent_state import LocalCheckpoint, TrainerEnd
from trainer.agent.rules.observations import (
    CheckpointReady,
    Observation,
    PublicationFailed,
    TrainerExited,
)
from trainer.protocol.agent_report import TrainerOutcome

LIMIT_SECONDS = 60.0


class SavingGang:
    """`machines` of attempt 1. Saves are numbered by the test, as trainers do it alike."""

    def __init__(
        self,
        root: Path,
        machines: int = 2,
        silent_seconds: float = 30.0,
        life_seconds: float = 5.0,
    ) -> None:
        """As `ShareGatherer` and `ShareSender` take them."""
        self.root = root
        self.machines = machines
        self.remote = root / "store"
        self.may_commit = True
        self.said: list[str] = []
        self.opening_fails: Exception | None = None
        self.openers: set[str] = set()
        self.seen: list[queue.Queue[Observation]] = [queue.Queue() for _ in range(machines)]
        self._outboxes = []
        for machine in range(machines):
            (root / f"outbox-{machine}").mkdir(parents=True)
            checkpoints, kept = root / f"saved-{machine}", root / f"outbox-{machine}"
            kept_seconds = ASKED_WITHIN_SECONDS if machine > 0 else 0.0
            self._outboxes.append(Outbox(checkpoints, kept, machines, kept_seconds))
        self.publisher = Publisher(
            self.store,
            self._outboxes[0],
            machines,
            lambda: self.may_commit,
            self.seen[0].put,
            self.said.append,
            ShareGatherer(1, machines, silent_seconds),
        )
        self.senders = [
            ShareSender(
                self.store,
                self._outboxes[machine],
                1,
                machine,
                self.seen[machine].put,
                self.said.append,
                life_seconds,
            )
            for machine in range(1, machines)
        ]

    def store(self) -> StorageRoot:
        self.openers.add(threading.current_thread().name)
        if self.opening_fails is not None:
            raise self.opening_fails
        return StorageRoot(self.remote.as_uri())

    def save(
        self,
        machine: int,
        step: int,
        save: int,
        *,
        final: bool = False,
        text: str = "",
        optional: bytes = b"",
    ) -> LocalCheckpoint:
        """A machine's trainer completes its share of a save, and its agent sees it."""
        name = f"step-{step:012d}"
        building = self.root / f"saved-{machine}" / f"{name}.tmp"
        building.mkdir(parents=True)
        (building / f"weights-{machine}").write_text(text or f"of save {save}")
        share = {"machine": machine, "machines": self.machines, "save": save}
        document = {"final": final, "share": share, "optional": []}
        if optional:
            (building / f"averages-{machine}").write_bytes(optional)
            document["optional"] = [f"averages-{machine}"]
        of_share = f"manifest-{machine + 1:05d}-of-{self.machines:05d}.json"
        (building / (of_share if machine else "manifest.json")).write_text(json.dumps(document))
        shutil.rmtree(building.with_name(name), ignore_errors=True)
        building.rename(building.with_name(name))
        found = self.see(machine)
        assert found.save == save
        return found

    def see(self, machine: int) -> LocalCheckpoint:
        """The machine's agent sees what its trainer has completed, which is one folder."""
        (found,) = self._outboxes[machine].scan()
        if machine:
            self.senders[machine - 1].see(CheckpointReady(1, found))
        return found

    def save_all(self, step: int, save: int, **more: Any) -> LocalCheckpoint:
        """All machines save; what machine 0 has of it."""
        found = [self.save(machine, step, save, **more) for machine in range(self.machines)]
        return found[0]

    def publish(self, checkpoint: LocalCheckpoint, leave_out: bool = False) -> None:
        self.publisher.submit(PublishCheckpoint(1, None, checkpoint, leave_out))

    def send_unasked(self, machine: int, checkpoint: LocalCheckpoint) -> None:
        self.senders[machine - 1].submit(PublishCheckpoint(1, None, checkpoint))

    def end_trainer(self, machine: int) -> None:
        ended = TrainerExited(1, TrainerEnd(TrainerOutcome.FAILED))
        self.senders[machine - 1].see(ended)

    def publish_till_heard(self, checkpoint: LocalCheckpoint) -> Observation:
        """As often as a machine is waited for in vain, as the supervisor does."""
        while True:
            self.publish(checkpoint)
            told = self.told()
            if not isinstance(told, PublicationFailed) or not told.unheard:
                return told

    def told(self, machine: int = 0) -> Observation:
        """What machine 0's publisher, or another's sender, observes next."""
        return self.seen[machine].get(timeout=LIMIT_SECONDS)

    def manifests(self) -> list[str]:
        """Steps that are committed."""
        return sorted(path.stem.lstrip("0") for path in self.remote.glob("manifests/*/*.json"))

    def stored(self, pattern: str) -> list[Path]:
        return sorted(self.remote.glob(pattern))

    def wait_for(self, pattern: str) -> None:
        wait_until(lambda: bool(self.stored(pattern)), lambda: f"{pattern}: {self.said}")

    def restore(self, fence: int = 2) -> ResumePoint:
        target = self.root / f"resume-{fence}"
        store = self.store()
        return Restorer(store, fence, "other", target, lambda: False, self.said.append).restore(0)

    def close(self) -> None:
        self.publisher.close()
        for sender in self.senders:
            sender.close()


@contextmanager
def gang_in(root: Path, **options: Any) -> Iterator[SavingGang]:
    """Nothing of it goes on afterwards."""
    made = SavingGang(root, **options)
    try:
        yield made
    finally:
        made.close()
