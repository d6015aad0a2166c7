"""`python -m tests.bench_trainer [--quick] [--only NAME] [--json FILE]`.

Lives here: which rows there are, their order and their limits. A missed goal is a figure, not a
failure: the command ends with 1 only when a row could not be carried out. Each row is a module of
this package with `measure(around) -> list[Figure]`; it is imported when its turn comes.
"""

from __future__ import annotations

import argparse
import importlib
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from types import FrameType
from typing import Any

from tests.bench.results import Failure, Figure, load_average, machine, table, write_json
from tests.bench_trainer.around import Around, NotHere

LIMIT_SECONDS = 2_400
ROWS: dict[str, str] = {
    "loop": "speed.loop_overhead",
    "gpu-throughput": "speed.gpu_speed",
    "precision": "speed.mixed_precision",
    "ranks": "speed.rank_scaling",
    "checkpoint": "checkpoint.checkpoint_cost",
    "gpu-checkpoint": "checkpoint.checkpoint_stall",
    "notice": "checkpoint.notice_to_durable",
    "in-flight": "checkpoint.notice_in_flight",
    "store": "checkpoint.notice_to_store",
    "resume": "resume.exact_resume",
    "elastic": "resume.elastic_ranks",
    "integrity": "checkpoint.damaged_bits",
    "kills": "resume.sudden_deaths",
    "goodput": "resume.goodput_replay",
    "loader": "speed.loader_cost",
    "ledger": "speed.ledger_closes",
    "start-up": "speed.start_up_time",
    "gpu-use": "speed.gpu_use",
}
_RESULTS = Path("bench-trainer-results.json")


class OverTime(Exception):
    """A row took longer than it may."""


def main(arguments: list[str]) -> int:
    """Run what is asked for; the exit code for the shell."""
    chosen = _arguments(arguments)
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"[{time.monotonic() - began:5.0f} s] {line}", file=sys.stderr, flush=True)

    figures: list[Figure] = []
    failures: list[Failure] = []
    absent: list[Failure] = []
    loads: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="lowtide-bench-") as folder:
        around = Around(Path(folder), chosen.quick, say)
        for name in (name for name in ROWS if name in (chosen.only or ROWS)):
            loads[name] = load_average()
            say(f"{name} (load average {loads[name]})")
            try:
                figures += _measure(name, around)
            except NotHere as error:
                absent.append(Failure(name, str(error)))
            except Exception as error:
                traceback.print_exc()
                failures.append(Failure(name, f"{type(error).__name__}: {error}"))
    seconds = round(time.monotonic() - began)
    about = {"machine": machine(), "load_average_before": loads, "quick": chosen.quick}
    write_json(chosen.json, figures, failures + absent, {**about, "wall_seconds": seconds})
    print(_heading(loads, seconds))
    print(table(figures, failures + absent))
    print(f"\nAll details: {chosen.json}")
    return 1 if failures else 0


def _measure(name: str, around: Around) -> list[Figure]:
    """One row, interrupted when it takes too long."""

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise OverTime(f"stopped after {LIMIT_SECONDS} s")

    row: Any = importlib.import_module(f"tests.bench_trainer.{ROWS[name]}")
    before = signal.signal(signal.SIGALRM, interrupt)
    signal.alarm(LIMIT_SECONDS)
    try:
        found: list[Figure] = row.measure(around)
        return found
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench_trainer", description=__doc__)
    parser.add_argument(
        "--only", action="append", choices=list(ROWS), help="only this one; repeatable"
    )
    parser.add_argument("--quick", action="store_true", help="shorter and rougher")
    parser.add_argument("--json", type=Path, default=_RESULTS, help=f"default: {_RESULTS}")
    return parser.parse_args(arguments)


def _heading(loads: dict[str, float], seconds: int) -> str:
    about = machine()
    busiest = max(loads.values(), default=0.0)
    return (
        f"\n{about['cores']} cores ({about['processor']}), {about['memory_gib']} GiB, "
        f"Python {about['python']}; load average before each row at most {busiest}; "
        f"{seconds} s in all\n"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
