"""What a simulated day costs: five jobs, eight machines, 24 virtual hours, faults and all checks.

Each seed runs in a process of its own on a fresh database of a PostgreSQL without fsync, as the
tests run it. Counted is the processor time of both. Not here: the simulation (`app.simulation`).
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from statistics import median

from tests.bench.bench_environment import ROOT, BenchEnvironment, OwnPostgres, plain_environment
from tests.bench.process_cost import Meter
from tests.bench.results import Figure

HOURS = 24.0
_LIMIT_SECONDS = 150
_PROGRAM = """
import json, sys
from app.simulation.runs.run_seed import run_seed
done = run_seed(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
print(json.dumps({"events": done.events, "transactions": done.transactions,
                  "machines": done.machines, "virtual_hours": done.virtual_hours}))
"""


def measure(around: BenchEnvironment) -> list[Figure]:
    """The median of some seeds."""
    seeds = (1,) if around.quick else (1, 2)
    around.say("starting a PostgreSQL without fsync")
    postgres = OwnPostgres(around.new_folder("simulated"), fsync=False)
    try:
        found = {seed: _one(around, postgres, seed) for seed in seeds}
    finally:
        postgres.stop()
    totals = [one["python_s"] + one["postgres_s"] for one in found.values()]
    python = median(one["python_s"] for one in found.values())
    detail = {f"seed {seed}": one for seed, one in found.items()}
    return [
        Figure("simulation", "24 virtual hours, CPU", median(totals), "s", 20.0, True, detail),
        Figure("simulation", "its Python part", python, "s"),
    ]


def _one(around: BenchEnvironment, postgres: OwnPostgres, seed: int) -> dict[str, float]:
    url = postgres.clone()
    clocks = {"postgres": postgres.cpu_seconds, "python": _children_cpu_seconds}
    with Meter(clocks) as meter:
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM, url, str(seed), str(HOURS)],
            cwd=ROOT,
            env=plain_environment(),
            capture_output=True,
            text=True,
            timeout=_LIMIT_SECONDS,
            check=False,
        )
    if done.returncode != 0:
        raise RuntimeError(f"seed {seed} failed:\n{done.stderr[-1500:]}")
    spent = meter.cost.cpu_seconds
    around.say(
        f"seed {seed}: Python {spent['python']:.1f} s + PostgreSQL {spent['postgres']:.1f} s of "
        f"CPU, {meter.cost.wall_seconds:.0f} s by the clock"
    )
    facts: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return {
        "python_s": round(spent["python"], 2),
        "postgres_s": round(spent["postgres"], 2),
        "wall_s": round(meter.cost.wall_seconds, 1),
        **facts,
    }


def _children_cpu_seconds() -> float:
    """Of all processes that this one has started and waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
