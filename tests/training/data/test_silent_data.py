"""A notice while samples do not come: a bucket that hangs must not cost what was trained."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support.object_stores.object_store_fakes import S3Fake
from tests.training.data import small_data
from tests.training.data.silent_store import SilentGate
from tests.training.data.test_data_buckets import run as run_beside
from tests.training.gang.torchrun_gang import LIMIT_SECONDS, wait_until
from tests.training.loop.interrupted_run import Attempt, InterruptedRun
from trainer.training.checkpoint.folder import CheckpointFolder

ALL = 1 << 30
# Longer than a rank needs, shorter than torchrun's patience and the bucket's client.
NOTICE_SECONDS = 25.0


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Fake]:
    """A bucket with a few images in shards, under ``small``."""
    fake = S3Fake()
    folder = tmp_path_factory.mktemp("images")
    small_data.shard(folder / "train.tar", range(24))
    small_data.shard(folder / "validation.tar", range(24, 30))
    run_beside(fake, "upload", str(folder), f"{fake.uri}/small")
    yield fake
    fake.close()


@pytest.fixture
def gate(store: S3Fake) -> Iterator[SilentGate]:
    port = urlsplit(store.environment()["AWS_ENDPOINT_URL"]).port
    assert port is not None
    gate = SilentGate(port)
    yield gate
    gate.close()


@pytest.mark.full
@pytest.mark.parametrize(
    ("ranks", "answers", "further"),
    [
        (1, ALL, {"workers": 0}),
        # One rank of two waits for samples; the other one must not be deep in an exchange.
        (2, 1, {"workers": 1, "accumulation": 2}),
    ],
)
def test_a_notice_ends_the_wait_for_a_silent_bucket(
    tmp_path: Path,
    store: S3Fake,
    gate: SilentGate,
    ranks: int,
    answers: int,
    further: dict[str, int],
) -> None:
    config = config_of(
        store, steps=100_000, eval_every_epochs=0, checkpoint_interval_seconds=600, **further
    )
    run = InterruptedRun(tmp_path, config, ranks)
    with run.attempt(variables=through(gate, store)) as attempt:
        assert attempt.wait_for_step(3), attempt.log()[-3000:]
        gate.silence(answers)
        wait_until(gate.is_silent.is_set)
        stand_still(attempt)
        told_at = time.monotonic()
        attempt.process.send_signal(signal.SIGTERM)
        code = attempt.wait()
        took = time.monotonic() - told_at
    endings = [attempt.ending(rank) for rank in range(ranks)]
    assert [each and each["outcome"] for each in endings] == ["drained"] * ranks, attempt.log()
    assert ranks > 1 or code == 75
    reached = attempt.last_step()
    newest = CheckpointFolder(tmp_path / "checkpoints").complete()[0]
    assert newest.name == f"step-{reached:012d}"
    assert took < NOTICE_SECONDS
    (told,) = [line for line in attempt.lines("goodput") if line["final"]]
    assert told["buckets"]["data_wait"] > 1.0
    assert sum(told["buckets"].values()) == pytest.approx(told["total_seconds"])


@pytest.mark.full
def test_a_notice_ends_a_scoring_whose_samples_do_not_come(
    tmp_path: Path, store: S3Fake, gate: SilentGate
) -> None:
    config = config_of(store, steps=4, workers=1, step_delay_seconds=1.0)
    run = InterruptedRun(tmp_path, config)
    with run.attempt(variables=through(gate, store)) as attempt:
        assert attempt.wait_for_step(3), attempt.log()[-3000:]
        gate.silence(ALL)  # step 4 was read ahead; what is scored was not
        wait_until(lambda: attempt.lines("phase")[-1]["phase"] == "eval")
        wait_until(gate.is_silent.is_set)
        told_at = time.monotonic()
        attempt.process.send_signal(signal.SIGTERM)
        assert attempt.wait() == 75, attempt.log()[-3000:]
        took = time.monotonic() - told_at
    newest = CheckpointFolder(tmp_path / "checkpoints").complete()[0]
    assert newest.name == "step-000000000004"
    assert took < NOTICE_SECONDS


def config_of(store: S3Fake, **further: float) -> dict[str, Any]:
    """A small model that reads each sample from the bucket when it is needed."""
    return {
        "model": "mlp",
        "data": f"{store.uri}/small",
        "cache": "off",
        "image_size": 16,
        "batch_size": 6,
        **further,
    }


def through(gate: SilentGate, store: S3Fake) -> dict[str, str]:
    """The environment of a trainer that reaches the store through the gate only."""
    return {**store.environment(), "AWS_ENDPOINT_URL": f"http://127.0.0.1:{gate.port}"}


def stand_still(attempt: Attempt, seconds: float = 1.5) -> None:
    """Returns when no step has ended for so long: what was read ahead is used up."""
    end = time.monotonic() + LIMIT_SECONDS
    step, since = attempt.last_step(), time.monotonic()
    while time.monotonic() - since < seconds:
        assert time.monotonic() < end
        time.sleep(0.05)
        if attempt.last_step() != step:
            step, since = attempt.last_step(), time.monotonic()
