"""How long `lowtide up` takes to be ready: the first time, and every later time.

Beside the time by the clock stands the processor time of all its programs up to then, which other
work on the machine hardly changes.
"""

from __future__ import annotations

from statistics import median

from tests.bench.bench_environment import BenchEnvironment
from tests.bench.live_system import LiveSystem, up
from tests.bench.process_cost import cpu_seconds, family_cpu_seconds
from tests.bench.results import Figure


def measure(around: BenchEnvironment) -> list[Figure]:
    """One cold start, which makes the databases, then warm ones."""
    cold, cold_cpu = _start(around, "cold")
    warm = [_start(around, "warm") for _ in range(1 if around.quick else 3)]
    seconds, cpu = (median(one[place] for one in warm) for place in (0, 1))
    detail = {"warm_seconds": [round(one[0], 2) for one in warm], "cold_cpu_s": round(cold_cpu, 2)}
    return [
        Figure("start", "warm `lowtide up` to ready", seconds, "s", 4.0, True, detail),
        Figure("start", "its CPU, all programs", cpu, "s"),
        Figure("start", "cold `lowtide up` to ready", cold, "s"),
    ]


def _start(around: BenchEnvironment, what: str) -> tuple[float, float]:
    """Seconds by the clock, and of processor time."""
    with up(around.live_folder) as system:
        spent = _cpu_seconds(system)
        around.say(f"{what} start: ready in {system.ready_seconds:.2f} s, {spent:.2f} s of CPU")
        return system.ready_seconds, spent


def _cpu_seconds(system: LiveSystem) -> float:
    """Of every program so far, PostgreSQL with its children."""
    pids = system.pids()
    postgres = pids.pop("postgres")
    return family_cpu_seconds(postgres) + sum(map(cpu_seconds, pids.values()))
