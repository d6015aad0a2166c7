"""The mutants as data, and one of them applied to a scratch copy of the sources.

Not here: running them (`__main__`), or the worlds that must notice (`scenarios.scenarios`).
"""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from app.simulation.runs.seed_runs import SOURCES
from tests.support.sources.source_tree import ROOT

CATALOGUE = Path(__file__).with_name("mutants.toml")


@dataclass(frozen=True)
class Mutant:
    """One line that is wrong. equivalent: why no run can tell it from the right one, or ""."""

    name: str
    area: str
    file: str
    old: str
    new: str
    scenario: str
    equivalent: str = ""


def read_mutants() -> tuple[Mutant, ...]:
    """All of them, in the order of the file."""
    with CATALOGUE.open("rb") as file:
        return tuple(Mutant(**row) for row in tomllib.load(file)["mutant"])


def places(root: Path, mutant: Mutant) -> list[int]:
    """Line numbers, from 0, at which the old line stands."""
    lines = (root / mutant.file).read_text().split("\n")
    return [number for number, line in enumerate(lines) if line == mutant.old]


@contextmanager
def scratch_tree(folder: Path, mutant: Mutant | None) -> Iterator[Path]:
    """A copy of the sources below the folder, with the mutant in it; removed afterwards.

    Raises ValueError where its old line does not stand exactly once.
    """
    tree = folder / ("original" if mutant is None else mutant.name)
    try:
        for name in SOURCES:
            # With what was compiled: dates are copied, so only the mutated file is compiled anew.
            shutil.copytree(ROOT / name, tree / name)
        if mutant is not None:
            _apply(tree, mutant)
        yield tree
    finally:
        shutil.rmtree(tree, ignore_errors=True)


def _apply(tree: Path, mutant: Mutant) -> None:
    found = places(tree, mutant)
    if len(found) != 1:
        raise ValueError(f"{mutant.name}: its old line stands {len(found)} times in {mutant.file}")
    path = tree / mutant.file
    lines = path.read_text().split("\n")
    lines[found[0]] = mutant.new
    path.write_text("\n".join(lines))
