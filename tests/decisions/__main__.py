"""`python -m tests.decisions`: make the yardstick anew, and hold the code of today against it.

`record` simulates the worlds and writes what the code of today decides in them: only where a
decision was changed on purpose (README.md says when). It keeps a file for each world and goes on
where it was cut off; `merge` makes do with the worlds that there are. `replay` has the code of
today decide in every recorded state and prints what is otherwise than recorded, by kind. `accept`
does the same and then keeps the recorded states with the decisions of today. `count` lists the
kinds.

Exit status 0 when every decision is as recorded, 1 when one is not, 2 for a wrong argument.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

from app.simulation.engine.scratch_database import scratch_databases
from tests.decisions.backtest_courses import kinds_of, recorded_courses
from tests.decisions.comparing import differing_courses, differing_triples, read_courses
from tests.decisions.recording import record_parts, recorded_parts
from tests.decisions.replaying import quiet, replays
from tests.decisions.triples_file import RECORDED, read_triples, write_triples
from tests.decisions.worlds import recorded_worlds
from tests.support.sources.source_tree import ROOT

PARTS = ROOT / ".make" / "decisions"
"""Remove it to begin a recording anew: what lies there is of the code that it was recorded with."""


def main(arguments: list[str] | None = None) -> int:
    """Do what the arguments ask for."""
    given = _parser().parse_args(arguments)
    if given.what == "record":
        return _record(given.file, given.parts, given.only)
    if given.what == "merge":
        return _merge(given.file, given.parts)
    if given.what == "accept":
        return _accept(given.file, given.show)
    return _replay(given.file, given.every, given.show) if given.what == "replay" else _count(given)


def _record(path: Path, parts: Path, only: str) -> int:
    """What is missing among the parts, then the file of all of them."""
    worlds = [one for one in recorded_worlds() if only in one.name]
    parts.mkdir(parents=True, exist_ok=True)
    with scratch_databases() as databases, quiet("app.orchestration"):
        record_parts(worlds, databases, parts, _tell)
    return _merge(path, parts)


def _merge(path: Path, parts: Path) -> int:
    triples = list(recorded_parts(recorded_worlds(), parts))
    courses = list(recorded_courses())
    size = write_triples(path, triples, ({"course": asdict(one)} for one in courses))
    worlds = {one.situation.world for one in triples}
    answers = sum(len(one.answers) for one in courses)
    print(
        f"{len(triples)} triples of {len(worlds)} of {len(recorded_worlds())} worlds, {answers} of"
    )
    print(f"the back-test's {len(courses)} courses; {size:,} bytes in {path}")
    return 0


def _replay(path: Path, every: int, show: int) -> int:
    wrong: Counter[str] = Counter()
    triples = list(read_triples(path))[::every]
    with scratch_databases() as databases, databases.one() as url, replays(url) as again:
        for number, one in enumerate(differing_triples(triples, again)):
            wrong[one.triple.outcome.kind] += 1
            if number < show:
                print(one)
    courses = list(read_courses(path))
    for difference in differing_courses(courses):
        wrong[f"back-test: {difference.answers} answers"] += 1
    for kind, count in wrong.most_common():
        print(f"{count:5}  {kind}")
    print(f"{wrong.total()} of {len(triples)} triples and {len(courses)} courses are otherwise")
    return 1 if wrong else 0


def _accept(path: Path, show: int) -> int:
    """The back-test's courses stay; an error that today's code raises in a state is raised."""
    triples = list(read_triples(path))
    with scratch_databases() as databases, databases.one() as url, replays(url) as again:
        others = {id(one.triple): one for one in differing_triples(triples, again)}
    for number, one in enumerate(others.values()):
        if isinstance(one.now, Exception):
            raise one.now
        if number < show:
            print(one)
    now = (
        replace(one, outcome=others[id(one)].now) if id(one) in others else one for one in triples
    )
    courses = ({"course": asdict(one)} for one in read_courses(path))
    size = write_triples(path, now, courses)
    print(f"{len(others)} of {len(triples)} triples have today's decisions; {size:,} bytes")
    return 0


def _count(given: argparse.Namespace) -> int:
    kinds = Counter(one.outcome.kind for one in read_triples(given.file))
    for course in read_courses(given.file):
        kinds.update(kinds_of(course))
    for kind, count in sorted(kinds.items()):
        print(f"{count:5}  {kind}")
    print(f"{kinds.total()} triples of {len(kinds)} kinds")
    return 0


def _tell(line: str) -> None:
    print(line, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.decisions", description=__doc__)
    parser.add_argument("what", choices=("record", "merge", "replay", "accept", "count"))
    parser.add_argument("--file", type=Path, default=RECORDED, help="read or written")
    parser.add_argument("--parts", type=Path, default=PARTS, help="a recording's own, by world")
    parser.add_argument("--only", default="", help="record worlds with this in their name only")
    parser.add_argument("--every", type=int, default=1, help="replay each n-th triple only")
    parser.add_argument("--show", type=int, default=3, help="so many differences in full")
    return parser


if __name__ == "__main__":
    sys.exit(main())
