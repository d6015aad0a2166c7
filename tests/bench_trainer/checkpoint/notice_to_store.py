"""SIGTERM to committed in a store of 200 MB/s: the emergency save of ResNet-50 with momentum and
EMA, 307 MB.

The trainer, the agent's outbox, publisher and client are the real ones; the store is a server on
loopback that takes in no more than 200 MB/s in all.
"""

from __future__ import annotations

import os
import queue
import signal
import time
from pathlib import Path
from typing import Any

from tests.bench.results import Figure
from tests.bench_trainer.around import Around
from tests.support.object_stores.object_store_fakes import GcsFake
from tests.training.loop.interrupted_run import Attempt, InterruptedRun
from trainer.agent.attempt.trainer_run import LOOK_SECONDS
from trainer.agent.checkpoints.outbox import Outbox
from trainer.agent.checkpoints.publisher import Publisher
from trainer.agent.checkpoints.storage_root import StorageRoot
from trainer.agent.rules.actions import PublishCheckpoint
from trainer.agent.rules.observations import CheckpointPublished, Observation

STORE_BYTES_PER_SECOND = 200e6
LIMIT_SECONDS = 300.0
CONFIG: dict[str, Any] = {
    "model": "resnet50",
    "data": "digits",
    "steps": 1_000_000,
    "batch_size": 4,
    "optimizer": "sgd",
    "ema_decay": 0.99,
    "eval_every_epochs": 0,
    "checkpoint_interval_steps": 1_000_000,
}


def measure(around: Around) -> list[Figure]:
    """The slowest of some notices; each attempt goes on where the one before was drained."""
    fake = GcsFake()
    fake.steering.bytes_per_second = STORE_BYTES_PER_SECOND
    before = dict(os.environ)
    os.environ.update(fake.environment())
    run = InterruptedRun(around.new_folder("notice-to-store"), CONFIG)
    seconds, megabytes = [], 0.0
    try:
        for fence in range(1, around.count(5, 2) + 1):
            with run.attempt() as attempt:
                took, size_bytes = _one_notice(attempt, run.folder, fake.uri, fence)
            seconds.append(took)
            megabytes = size_bytes / 1e6
            around.say(f"notice {fence}: {took:.2f} s for {megabytes:.0f} MB")
    finally:
        os.environ.clear()
        os.environ.update(before)
        fake.close()
    detail = {"megabytes": round(megabytes), "seconds": [round(each, 2) for each in seconds]}
    worst = max(seconds)
    what = f"notice to committed, {megabytes:.0f} MB at 200 MB/s, slowest of {len(seconds)}"
    return [Figure("store", what, worst, "s", 10.0, True, detail)]


def _one_notice(attempt: Attempt, folder: Path, uri: str, fence: int) -> tuple[float, int]:
    """(seconds from the signal to the manifest, bytes of the checkpoint)."""
    seen: queue.Queue[Observation] = queue.Queue()
    outbox_folder = folder / f"outbox-{fence}"
    outbox_folder.mkdir()
    outbox = Outbox(folder / "checkpoints", outbox_folder)
    publisher = Publisher(
        lambda: StorageRoot(uri), outbox, 1, lambda: True, seen.put, lambda _: None
    )
    try:
        attempt.wait_for_step(max(attempt.last_step(), 0) + 2)
        outbox.scan()  # what earlier attempts have left
        asked_at = time.monotonic()
        attempt.process.send_signal(signal.SIGTERM)
        while time.monotonic() < asked_at + LIMIT_SECONDS:
            for checkpoint in outbox.scan():
                publisher.submit(PublishCheckpoint(fence, None, checkpoint))
            try:
                found = seen.get(timeout=LOOK_SECONDS)
            except queue.Empty:
                continue
            if not isinstance(found, CheckpointPublished):
                raise RuntimeError(f"not committed: {found}")
            return time.monotonic() - asked_at, found.size_bytes
        raise TimeoutError(f"nothing was committed within {LIMIT_SECONDS:.0f} s")
    finally:
        publisher.close()
