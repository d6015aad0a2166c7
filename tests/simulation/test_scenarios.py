"""Every named world ends as it must, and nothing breaks a rule on the way."""

from __future__ import annotations

import pytest

from app.simulation.scenarios import SCENARIOS, run_scenario

# The worker's death after each of its first phases is one world; two of them stand for the rest.
SHORT_DEATHS = {"worker_dies_after_phase_1", "worker_dies_after_phase_7"}
LONG = {name for name in SCENARIOS if name.startswith("worker_dies_after_phase_")} - SHORT_DEATHS


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.full) if name in LONG else name for name in SCENARIOS],
)
def test_scenario(name: str, database_url: str) -> None:
    run_scenario(database_url, name)
