"""How long `lowtide up` takes to be ready: the first time, and every later time."""

from __future__ import annotations

from statistics import median

from tests.bench.live_system import up
from tests.bench.results import Figure
from tests.bench.surroundings import Surroundings


def measure(around: Surroundings) -> list[Figure]:
    """One cold start, which makes the databases, then warm ones."""
    folder = around.live_folder
    cold = _ready_seconds(around, "cold")
    warm = [_ready_seconds(around, "warm") for _ in range(1 if around.quick else 3)]
    detail = {"warm_seconds": [round(one, 2) for one in warm], "folder": folder.name}
    return [
        Figure("start", "warm `lowtide up` to ready", median(warm), "s", 4.0, True, detail),
        Figure("start", "cold `lowtide up` to ready", cold, "s"),
    ]


def _ready_seconds(around: Surroundings, what: str) -> float:
    with up(around.live_folder) as system:
        around.say(f"{what} start: ready in {system.ready_seconds:.2f} s")
        return system.ready_seconds
