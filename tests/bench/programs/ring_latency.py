"""From a commit to its controller at work: api, ring, Valkey, worker, on an idle system.

A job is submitted that no pool can carry, so that the claim costs nothing further: what the queue's
controller writes of it is stamped with the instant of the controller's second transaction. The
job's own stamp is from before the insert. The distance between the two is thus more than the time
from commit to controller, by the insert and by the controller's look into the queue.
"""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import UTC, datetime
from statistics import median
from typing import Any

from app.cli.client.failures import CommandFailed
from tests.bench.bench_environment import BenchEnvironment
from tests.bench.live_system import LiveSystem, instant, wait_for
from tests.bench.results import Figure

_SPEC: dict[str, Any] = {
    "trainer": {"model": "mlp", "data": "digits", "steps": 10},
    "resources": {"gpu": "H200:8"},
}
_PAUSE_SECONDS = 0.25
_EVENT_SECONDS = 20.0


def measure(around: BenchEnvironment) -> list[Figure]:
    """One job after the other, with pauses."""
    count = 10 if around.quick else 40
    system = around.live
    _one(system)  # everything is loaded then
    found = [_one(system) for _ in range(count)]
    whole = sorted(one[0] for one in found)
    after_answer = sorted(one[1] for one in found)
    detail = {
        "jobs": count,
        "p90_ms": round(whole[int(0.9 * count)], 2),
        "max_ms": round(whole[-1], 2),
        "min_ms": round(whole[0], 2),
    }
    return [
        Figure("ring", "before commit → controller at work, p50", median(whole), "ms", 20.0,
               True, detail),
        Figure("ring", "its p90", whole[int(0.9 * count)], "ms"),
        Figure("ring", "answer to the client → the same, p50", median(after_answer), "ms"),
    ]  # fmt: skip


def _one(system: LiveSystem) -> tuple[float, float]:
    """Milliseconds from before the commit, and from the answer, to the controller's stamp."""
    time.sleep(_PAUSE_SECONDS)
    job = system.api.post("/jobs", _SPEC)
    answered = datetime.now(UTC)
    time.sleep(_PAUSE_SECONDS)  # asking at once would disturb what is measured
    [event] = wait_for(
        lambda: system.events(job["name"], "waiting")[:1], "the queue's look", _EVENT_SECONDS
    )
    at = instant(event["at"])
    with suppress(CommandFailed):
        system.api.post(f"/jobs/{job['name']}/cancel", {})
    whole = (at - instant(job["submitted_at"])).total_seconds()
    return 1000 * whole, 1000 * (at - answered).total_seconds()
