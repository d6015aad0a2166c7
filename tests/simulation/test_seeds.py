"""Mixed worlds: a few seeds in every run; in full all, and for ever those that once failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.simulation.runs.run_seed import run_seed

SHORT_SEEDS = (3, 5, 6)
SHORT_HOURS = 1.0
FULL_SHORT_SEEDS = (1, 2, 4)
SEEDS = range(1, 21)
HOURS = 2.0
REGRESSIONS = Path(__file__).with_name("regressions.txt")


def regressions() -> list[tuple[int, float, float]]:
    """(seed, hours, rate) of each line; a `#` begins a comment."""
    lines = (line.partition("#")[0].split() for line in REGRESSIONS.read_text().splitlines())
    return [(int(seed), float(hours), float(rate)) for seed, hours, rate in filter(None, lines)]


@pytest.mark.parametrize(
    ("seed", "hours"),
    [
        *((seed, SHORT_HOURS) for seed in SHORT_SEEDS),
        *(pytest.param(seed, SHORT_HOURS, marks=pytest.mark.full) for seed in FULL_SHORT_SEEDS),
        *(pytest.param(seed, HOURS, marks=pytest.mark.full) for seed in SEEDS),
    ],
)
def test_a_seed_breaks_no_rule(seed: int, hours: float, database_url: str) -> None:
    outcome = run_seed(database_url, seed, hours)
    assert len(outcome.states) == 5
    assert outcome.faults, "a world without faults proves nothing"


@pytest.mark.full
@pytest.mark.parametrize(("seed", "hours", "rate"), regressions())
def test_a_seed_that_failed_once_never_fails_again(
    seed: int, hours: float, rate: float, database_url: str
) -> None:
    run_seed(database_url, seed, hours, rate)
