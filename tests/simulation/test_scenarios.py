"""Every named world ends as it must, and nothing breaks a rule on the way."""

from __future__ import annotations

import pytest

from app.simulation.scenarios import SCENARIOS, run_scenario


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario(name: str, database_url: str) -> None:
    run_scenario(database_url, name)
