"""Every named world ends as it must, and nothing breaks a rule on the way."""

from __future__ import annotations

import pytest

from app.simulation.scenarios import SCENARIOS, run_scenario

# One or two of a kind stand for the rest of it; seeds (test_seeds.py) mix all kinds.
SHORT = {
    "hour_noticed",
    "notice_while_booting",
    "hour_killed_on_ec2",
    "throttled",
    "machine_of_no_job",
    "worker_dies_after_phase_1",
    "worker_dies_after_phase_7",
    "no_rings",
    "clock_jumps_back",
    "cancel_races_a_launch_reply",
    "hour_budget_used_up",
    "hour_slower_than_estimated",
    "absent_for_one_look",
    "hour_hangs",
    "store_away",
    "cancelled_from_memory",
    "backup_restored",
}


@pytest.mark.parametrize(
    "name",
    [name if name in SHORT else pytest.param(name, marks=pytest.mark.full) for name in SCENARIOS],
)
def test_scenario(name: str, database_url: str) -> None:
    run_scenario(database_url, name)


def test_the_short_ones_are_scenarios() -> None:
    assert set(SCENARIOS) >= SHORT
