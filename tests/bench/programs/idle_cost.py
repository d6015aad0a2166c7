"""What a control plane costs that has nothing to do: memory and processor of its programs."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from tests.bench.bench_environment import BenchEnvironment
from tests.bench.process_cost import (
    Meter,
    children,
    cpu_seconds,
    family_cpu_seconds,
    memory,
    programs_with,
)
from tests.bench.results import Figure

PROGRAMS = ("api", "worker", "beat")
BESIDE = ("valkey", "lowtide")
_MB = 1_000_000


def measure(around: BenchEnvironment) -> list[Figure]:
    """After some seconds of rest, so many more."""
    rest, seconds = (2.0, 5.0) if around.quick else (5.0, 20.0)
    system = around.live
    pids = system.pids()
    ours = [pids[name] for name in PROGRAMS]
    around.say(f"resting {rest:.0f} s, then watching {seconds:.0f} s")
    time.sleep(rest)
    clocks: dict[str, Callable[[], float]] = {
        **{name: partial(cpu_seconds, pids[name]) for name in BESIDE},
        "postgres": lambda: family_cpu_seconds(pids["postgres"]),
        **{name: partial(cpu_seconds, pids[name]) for name in PROGRAMS},
    }
    with Meter(clocks) as meter:
        time.sleep(seconds)
    share = {
        name: round(100 * spent / meter.cost.wall_seconds, 2)
        for name, spent in meter.cost.cpu_seconds.items()
    }
    held = memory(ours)
    postgres = [pids["postgres"], *children(pids["postgres"])]
    cloud = programs_with(str(system.folder), besides=[*pids.values(), *postgres])
    detail = {
        "cpu_percent": share,
        "rss_mb": {name: round(memory([pids[name]]).rss_bytes / _MB, 1) for name in PROGRAMS},
        "pss_mb": {name: round(memory([pids[name]]).pss_bytes / _MB, 1) for name in PROGRAMS},
        "beside_pss_mb": {
            "postgres": round(memory(postgres).pss_bytes / _MB, 1),
            **{name: round(memory([pids[name]]).pss_bytes / _MB, 1) for name in BESIDE},
            "local cloud": round(memory(cloud).pss_bytes / _MB, 1),
        },
    }
    cpu = sum(share[name] for name in PROGRAMS)
    everything = sum(share.values())
    return [
        Figure("idle", "api + worker + beat, RSS", held.rss_bytes / _MB, "MB", 400, True, detail),
        Figure("idle", "api + worker + beat, PSS", held.pss_bytes / _MB, "MB"),
        Figure("idle", "api + worker + beat, CPU of a core", cpu, "%", 1.5),
        Figure("idle", "with PostgreSQL, Valkey and supervisor", everything, "%"),
    ]
