"""`python -m tests.bench [--quick] [--only NAME]`: measure, print the table, write the JSON file.

Lives here: which benchmarks there are, their order and their limits. A missed goal is a figure, not
a failure: the command ends with 1 only when a benchmark could not be carried out.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from tests.bench.api import agent_reports, cost_ledger, crowded_api, jobs_page, submit_rate
from tests.bench.bench_environment import BenchEnvironment
from tests.bench.clouds import clouds_launching, clouds_sweeping, clouds_watching
from tests.bench.controllers import placement_decisions, queue_cost, simulated_day
from tests.bench.programs import idle_cost, machine_loss, ring_latency, start_time
from tests.bench.results import Failure, Figure, load_average, machine, table, write_json

Measure = Callable[[BenchEnvironment], list[Figure]]

LIMIT_SECONDS = 240
BENCHMARKS: dict[str, Measure] = {
    "submit": submit_rate.measure,
    "queue": queue_cost.measure,
    "start": start_time.measure,
    "idle": idle_cost.measure,
    "ring": ring_latency.measure,
    "loss": machine_loss.measure,
    "simulation": simulated_day.measure,
    "decisions": placement_decisions.measure,
    "reports": agent_reports.measure,
    "crowd": crowded_api.measure,
    "jobs-page": jobs_page.measure,
    "costs": cost_ledger.measure,
    "notices": clouds_watching.measure,
    "sweeps": clouds_sweeping.measure,
    "launches": clouds_launching.measure,
}
_RESULTS = Path("bench-results.json")


class OverTime(Exception):
    """A benchmark took longer than it may."""


def main(arguments: list[str]) -> int:
    """Run what is asked for; the exit code for the shell."""
    chosen = _arguments(arguments)
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"[{time.monotonic() - began:5.0f} s] {line}", file=sys.stderr, flush=True)

    figures: list[Figure] = []
    failures: list[Failure] = []
    loads: dict[str, float] = {}
    with BenchEnvironment(chosen.quick, say) as around:
        # In this order: `start` needs its folder to itself, before others keep a system up in it.
        for name in (name for name in BENCHMARKS if name in (chosen.only or BENCHMARKS)):
            loads[name] = load_average()
            say(f"{name} (load average {loads[name]})")
            try:
                with _limited(LIMIT_SECONDS):
                    figures += BENCHMARKS[name](around)
            except Exception as error:
                traceback.print_exc()
                failures.append(Failure(name, f"{type(error).__name__}: {error}"))
    seconds = round(time.monotonic() - began)
    about = {"machine": machine(), "load_average_before": loads, "quick": chosen.quick}
    write_json(chosen.json, figures, failures, {**about, "wall_seconds": seconds})
    print(_heading(loads, seconds))
    print(table(figures, failures))
    print(f"\nAll details: {chosen.json}")
    return 1 if failures else 0


def _arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument(
        "--only", action="append", choices=list(BENCHMARKS), help="only this one; repeatable"
    )
    parser.add_argument("--quick", action="store_true", help="shorter and rougher")
    parser.add_argument("--json", type=Path, default=_RESULTS, help=f"default: {_RESULTS}")
    return parser.parse_args(arguments)


def _heading(loads: dict[str, float], seconds: int) -> str:
    about = machine()
    busiest = max(loads.values(), default=0.0)
    return (
        f"\n{about['cores']} cores ({about['processor']}), {about['memory_gib']} GiB, "
        f"Python {about['python']}; load average before each benchmark at most {busiest}; "
        f"{seconds} s in all\n"
    )


@contextmanager
def _limited(seconds: int) -> Iterator[None]:
    """Interrupt what takes longer."""

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise OverTime(f"stopped after {seconds} s")

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
