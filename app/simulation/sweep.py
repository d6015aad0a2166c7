"""`python -m app.simulation.sweep`: many seeds, going on where the last call stopped.

Lives here: which seeds are left, the counts that are kept, and what is printed. Not here: one run
(`seed_runs`) or the world of a seed (`run_seed`).

Exit status 0 when every rule held in all seeds, 1 when one was broken, 2 for a wrong argument.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, field
from pathlib import Path

from app.simulation.engine.scratch_database import scratch_databases
from app.simulation.runs.seed_runs import RunStatus, SeedResult, SeedRuns, digest_of

ROOT = Path(__file__).parents[2]
SECONDS_MAX_PER_HOUR = 300.0
_REPORT_CHARACTERS_MAX = 4_000


@dataclass
class SweepState:
    """What a sweep has done so far, as it lies in its file. faults: counts by kind."""

    sources: str
    hours: float
    rate: float
    done: list[int] = field(default_factory=list)
    broken: dict[str, str] = field(default_factory=dict)
    events: int = 0
    virtual_hours: float = 0.0
    faults: dict[str, int] = field(default_factory=dict)

    def forget_unfinished(self) -> None:
        """Seeds whose world did not come to its end tell nothing: they are run again."""
        for seed, report in list(self.broken.items()):
            if not report.startswith(f"{RunStatus.BROKEN}:"):
                del self.broken[seed]
                self.done.remove(int(seed))

    def add(self, seed: int, result: SeedResult) -> None:
        """A seed has been run."""
        self.done.append(seed)
        if result.ending is not RunStatus.HELD:
            self.broken[str(seed)] = f"{result.ending}: {result.output[-_REPORT_CHARACTERS_MAX:]}"
            return
        told = json.loads(result.output.splitlines()[-1])
        self.events += told["events"]
        self.virtual_hours += told["virtual_hours"]
        self.faults = dict(sorted((Counter(self.faults) + Counter(told["faults"])).items()))


def main(arguments: list[str] | None = None) -> int:
    """Run what is left of the sweep."""
    given = _parser().parse_args(arguments)
    progress = _progress(given)
    done = set(progress.done)
    left = [seed for seed in range(given.first, given.first + given.seeds) if seed not in done]
    total = given.seeds
    if left:
        with scratch_databases() as databases:
            runs = SeedRuns(databases)
            try:
                _run_all(runs, given, progress, left)
            finally:
                runs.stop()
    _print_counts(progress, total)
    return 1 if progress.broken else 0


def _run_all(
    runs: SeedRuns, given: argparse.Namespace, progress: SweepState, left: list[int]
) -> None:
    """At most so many at a time; what has ended is written down at once."""
    waiting, under_way = list(reversed(left)), dict[Future[SeedResult], int]()
    pool = ThreadPoolExecutor(given.jobs)
    try:
        while waiting or under_way:
            while waiting and len(under_way) < given.jobs:
                seed = waiting.pop()
                under_way[pool.submit(_run_one, runs, given, seed)] = seed
            ended, _ = wait(under_way, return_when=FIRST_COMPLETED)
            for future in ended:
                seed, result = under_way.pop(future), future.result()
                progress.add(seed, result)
                _write(given.progress, progress)
                faults = sum(progress.faults.values())
                print(
                    f"{len(progress.done)}/{given.seeds}  seed {seed} {result.ending}  "
                    f"{faults} faults, {len(progress.broken)} broken",
                    flush=True,
                )
    finally:
        runs.stop()
        pool.shutdown(cancel_futures=True)


def _run_one(runs: SeedRuns, given: argparse.Namespace, seed: int) -> SeedResult:
    arguments = ["--seed", str(seed), "--hours", f"{given.hours:g}", "--rate", f"{given.rate:g}"]
    limit = SECONDS_MAX_PER_HOUR * max(1.0, given.hours)
    return runs.run(ROOT, [*arguments, "--json"], limit)


def _progress(given: argparse.Namespace) -> SweepState:
    """What the file tells, if it is of these sources and settings; else a beginning."""
    begun = SweepState(digest_of(ROOT), given.hours, given.rate)
    if given.again or not given.progress.exists():
        return begun
    known = SweepState(**json.loads(given.progress.read_text()))
    same = (known.sources, known.hours, known.rate) == (begun.sources, begun.hours, begun.rate)
    if not same:
        print("the sources or settings changed: the sweep starts from the beginning", flush=True)
        return begun
    known.forget_unfinished()
    return known


def _write(path: Path, progress: SweepState) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(asdict(progress), indent=1))
    fresh.replace(path)


def _print_counts(progress: SweepState, total: int) -> None:
    print(
        f"{len(progress.done)}/{total} seeds of {progress.hours:g} h at rate {progress.rate:g}: "
        f"{progress.virtual_hours:.1f} virtual hours, {progress.events} events, "
        f"{sum(progress.faults.values())} faults of {len(progress.faults)} kinds, "
        f"{len(progress.broken)} broken"
    )
    for kind, count in progress.faults.items():
        print(f"  {kind:24} {count}")
    for seed, report in sorted(progress.broken.items()):
        print(f"--- seed {seed} {report}", file=sys.stderr)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m app.simulation.sweep", description=__doc__)
    parser.add_argument("--seeds", type=_positive, default=300, help="how many (default 300)")
    parser.add_argument("--first", type=_positive, default=1, help="the first of them (default 1)")
    parser.add_argument("--hours", type=float, default=1.0, help="virtual hours (default 1)")
    parser.add_argument("--rate", type=float, default=6.0, help="times the faults (default 6)")
    parser.add_argument("--jobs", type=_positive, default=os.cpu_count() or 1, help="at a time")
    parser.add_argument("--again", action="store_true", help="start from the beginning")
    parser.add_argument(
        "--progress", type=Path, default=ROOT / ".make" / "simulate.json", help="its file"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
