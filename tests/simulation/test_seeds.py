"""Mixed worlds: twenty seeds in every run, and for ever those that once failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.simulation.run_seed import run_seed

HOURS = 2.0
REGRESSIONS = Path(__file__).with_name("regressions.txt")


def regressions() -> list[tuple[int, float, float]]:
    """(seed, hours, rate) of each line; a `#` begins a comment."""
    lines = (line.partition("#")[0].split() for line in REGRESSIONS.read_text().splitlines())
    return [(int(seed), float(hours), float(rate)) for seed, hours, rate in filter(None, lines)]


@pytest.mark.parametrize("seed", range(1, 21))
def test_a_seed_breaks_no_rule(seed: int, database_url: str) -> None:
    outcome = run_seed(database_url, seed, HOURS)
    assert len(outcome.states) == 5
    assert outcome.faults, "a world without faults proves nothing"


@pytest.mark.parametrize(("seed", "hours", "rate"), regressions())
def test_a_seed_that_failed_once_never_fails_again(
    seed: int, hours: float, rate: float, database_url: str
) -> None:
    run_seed(database_url, seed, hours, rate)
