"""`python -m tests.mutants`: break the control plane in one line, and see who notices.

Each mutant runs in the scenario that is named for it, with one seed after the other, until a rule
is broken; a kill counts where the unmutated sources hold in the same world. Results are kept in a
file, and a call goes on where the last one stopped, as long as the sources are the same.

Lives here: the order of runs, the file, the table. Not here: the mutants (`mutants.toml`), applying
one (`catalogue`), or one run (`app.simulation.runs.seed_runs`).

Exit status 0 when every mutant that is not equivalent was killed, 1 when one survives, 2 for a
wrong argument.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from pathlib import Path

from app.simulation.engine.scratch_database import scratch_databases
from app.simulation.runs.failure_report import BROKE
from app.simulation.runs.seed_runs import RunStatus, SeedRuns, digest_of
from tests.mutants.catalogue import CATALOGUE, Mutant, read_mutants, scratch_tree
from tests.support.sources.source_tree import ROOT

SEEDS_MAX = 10
SECONDS_PER_SEED_MAX = 180.0  # a world that never rests is watched for two more days
SECONDS_PER_MUTANT_MAX = 300.0
KEPT = ROOT / ".make" / "mutants.json"


@dataclass(frozen=True)
class Result:
    """How it went with one mutant. seed: the one that killed it, else the last one tried."""

    outcome: str  # killed, survived, timed_out, crashed
    seed: int
    seconds: float
    cause: str


class Hunt:
    """Hunts mutants; `original` holds each world of unmutated sources that was asked for."""

    def __init__(self, runs: SeedRuns, folder: Path, original: Path, seeds: int) -> None:
        self._runs = runs
        self._folder = folder
        self._original = original
        self._seeds = seeds
        self._held: dict[tuple[str, int], str] = {}
        self._lock = threading.Lock()

    def hunt(self, mutant: Mutant) -> Result:
        """One seed after the other until the mutant is killed, or its time is over."""
        began = time.monotonic()
        with scratch_tree(self._folder, mutant) as tree:
            for seed in range(1, self._seeds + 1):
                ending, cause = self._run(tree, mutant.scenario, seed)
                seconds = time.monotonic() - began
                if ending is RunStatus.BROKEN:
                    without = self._without(mutant.scenario, seed)
                    if without:
                        return Result("crashed", seed, seconds, f"so does the original: {without}")
                    return Result("killed", seed, seconds, cause)
                if ending is not RunStatus.HELD:
                    return Result(ending.value, seed, seconds, cause)
                if seconds > SECONDS_PER_MUTANT_MAX:
                    return Result("survived", seed, seconds, "its time is over")
            return Result("survived", self._seeds, seconds, "")

    def _run(self, tree: Path, scenario: str, seed: int) -> tuple[RunStatus, str]:
        arguments = ["--scenario", scenario, "--seed", str(seed)]
        result = self._runs.run(tree, arguments, SECONDS_PER_SEED_MAX)
        return result.ending, cause_of(result.output)

    def _without(self, scenario: str, seed: int) -> str:
        """What is wrong with the world without any mutant: nothing, or the kill means nothing."""
        with self._lock:
            known = self._held.get((scenario, seed))
        if known is None:
            ending, cause = self._run(self._original, scenario, seed)
            known = "" if ending is RunStatus.HELD else f"{ending}: {cause}"
            with self._lock:
                self._held[scenario, seed] = known
        return known


def cause_of(output: str) -> str:
    """The line of a run's report that names the rule; else its last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    after = [place + 1 for place, line in enumerate(lines) if line.startswith(BROKE)]
    if after and after[0] < len(lines):
        return lines[after[0]]
    return lines[-1] if lines else ""


def main() -> int:
    """Hunt those that are left, and print the table."""
    given = _parser().parse_args()
    mutants = [one for one in read_mutants() if not one.equivalent]
    wanted = [one for one in mutants if not given.only or one.name in given.only]
    digest = digest_of(ROOT, [CATALOGUE])
    results = {} if given.again else _read(given.progress, digest)
    left = [one for one in wanted if one.name not in results]
    if left:
        with scratch_databases() as databases, tempfile.TemporaryDirectory() as folder:
            runs = SeedRuns(databases)
            try:
                with scratch_tree(Path(folder), None) as original:
                    hunt = Hunt(runs, Path(folder), original, given.seeds)
                    _hunt_all(hunt, given, left, results, digest, len(wanted))
            finally:
                runs.stop()
    return _print_table(wanted, results)


def _hunt_all(
    hunt: Hunt,
    given: argparse.Namespace,
    left: list[Mutant],
    results: dict[str, Result],
    digest: str,
    total: int,
) -> None:
    waiting, under_way = list(reversed(left)), dict[Future[Result], Mutant]()
    pool = ThreadPoolExecutor(given.jobs)
    done = total - len(left)
    try:
        while waiting or under_way:
            while waiting and len(under_way) < given.jobs:
                mutant = waiting.pop()
                under_way[pool.submit(hunt.hunt, mutant)] = mutant
            for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                mutant, result = under_way.pop(future), future.result()
                results[mutant.name] = result
                done += 1
                _write(given.progress, digest, results)
                print(
                    f"{done}/{total}  {result.outcome:9} {mutant.name} (seed {result.seed}, "
                    f"{result.seconds:.0f} s) {result.cause[:160]}",
                    flush=True,
                )
    finally:
        # Those under way end at once, and their copies go with them.
        hunt._runs.stop()
        pool.shutdown(cancel_futures=True)


def _read(path: Path, digest: str) -> dict[str, Result]:
    """What was found in these very sources."""
    if not path.exists():
        return {}
    kept = json.loads(path.read_text())
    if kept["sources"] != digest:
        print("the sources or the mutants have changed: all are hunted anew", flush=True)
        return {}
    found = {name: Result(**result) for name, result in kept["results"].items()}
    # A run that did not come to its end tells nothing: it is made again.
    return {name: one for name, one in found.items() if one.outcome in ("killed", "survived")}


def _write(path: Path, digest: str, results: dict[str, Result]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    kept = {name: asdict(result) for name, result in sorted(results.items())}
    fresh.write_text(json.dumps({"sources": digest, "results": kept}, indent=1))
    fresh.replace(path)


def _print_table(wanted: list[Mutant], results: dict[str, Result]) -> int:
    print(f"\n{'area':18} {'mutant':50} {'scenario':28} {'outcome':10} {'seed':>4} {'s':>5}  rule")
    for mutant in wanted:
        one = results[mutant.name]
        print(
            f"{mutant.area:18} {mutant.name:50} {mutant.scenario:28} {one.outcome:10} "
            f"{one.seed:4} {one.seconds:5.0f}  {one.cause[:90]}"
        )
    for mutant in read_mutants():
        if mutant.equivalent:
            print(f"{mutant.area:18} {mutant.name:50} equivalent: {mutant.equivalent}")
    alive = [one.name for one in wanted if results[one.name].outcome != "killed"]
    print(f"\n{len(wanted) - len(alive)} of {len(wanted)} killed")
    for name in alive:
        print(f"not killed: {name}")
    return 1 if alive else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", nargs="*", metavar="NAME", help="these mutants alone")
    parser.add_argument("--again", action="store_true", help="forget what was found before")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="at a time")
    parser.add_argument("--seeds", type=int, default=SEEDS_MAX, help="at most, of each mutant")
    parser.add_argument("--progress", type=Path, default=KEPT, help="where results are kept")
    return parser


if __name__ == "__main__":
    sys.exit(main())
