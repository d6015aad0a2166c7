"""Every named world ends as it must, and nothing breaks a rule on the way."""

from __future__ import annotations

import pytest

from app.simulation.scenarios.scenarios import SCENARIOS, run_scenario

# One or two of a kind stand for the rest of it; seeds (test_seeds.py) mix all kinds. Others are
# elsewhere, too. Limits of a cloud's api: test_call_pace.py in tests/unit. In tests/integration:
# machines of no job, test_sweeps.py; budgets, test_budgets.py; restored backups,
# test_restored_backups.py; clocks, test_clock_jumps.py. In tests/e2e: a trainer that hangs, and
# a job that leaves spot in time, test_limits.py; a notice, test_interruptions.py. Rings are lost in
# every seed.
SHORT = {
    "notice_while_booting",
    "hour_killed_on_ec2",
    "worker_dies_after_phase_1",
    "cancel_races_a_launch_reply",
    "absent_for_one_look",
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
