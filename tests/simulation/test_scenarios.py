"""Every named world ends as it must, and nothing breaks a rule on the way."""

from __future__ import annotations

import pytest

from app.simulation.scenarios.scenarios import SCENARIOS, run_scenario

# One or two of a kind stand for the rest of it; seeds (test_seeds.py) mix all kinds. Limits of a
# cloud's api, machines of no job, budgets and restored backups are in tests/integration, too:
# test_call_pace.py in tests/unit, test_sweeps.py, test_budgets.py, test_restored_backups.py.
SHORT = {
    "hour_noticed",
    "notice_while_booting",
    "hour_killed_on_ec2",
    "worker_dies_after_phase_1",
    "no_rings",
    "clock_jumps_back",
    "cancel_races_a_launch_reply",
    "hour_slower_than_estimated",
    "absent_for_one_look",
    "hour_hangs",
    "store_away",
    "cancelled_from_memory",
}


@pytest.mark.parametrize(
    "name",
    [name if name in SHORT else pytest.param(name, marks=pytest.mark.full) for name in SCENARIOS],
)
def test_scenario(name: str, database_url: str) -> None:
    run_scenario(database_url, name)


def test_the_short_ones_are_scenarios() -> None:
    assert set(SCENARIOS) >= SHORT
