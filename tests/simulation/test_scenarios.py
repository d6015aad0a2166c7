"""Every named world ends as it must, and nothing breaks a rule on the way."""

from __future__ import annotations

import pytest

from app.simulation.scenarios import SCENARIOS, run_scenario

# One or two of a kind stand for the rest of it; seeds (test_seeds.py) mix all kinds.
SHORT = {
    "notice",
    "notice_while_booting",
    "kill_without_notice",
    "launch_never_answered",
    "throttled",
    "machine_of_no_job",
    "worker_dies_after_phase_1",
    "worker_dies_after_phase_7",
    "every_commit_doubtful",
    "no_rings",
    "clock_jumps_back",
    "cancel_races_a_launch_reply",
    "pause_and_resume",
    "budget_used_up",
    "deadline_near",
    "requests_lost",
    "machine_hangs",
    "cut_off_beyond_the_lease",
    "gpu_fault",
    "store_away",
    "trainer_fails",
    "elastic_grows_again",
    "cheaper_pool",
    "interrupted_while_moving",
}


@pytest.mark.parametrize(
    "name",
    [name if name in SHORT else pytest.param(name, marks=pytest.mark.full) for name in SCENARIOS],
)
def test_scenario(name: str, database_url: str) -> None:
    run_scenario(database_url, name)


def test_the_short_ones_are_scenarios() -> None:
    assert set(SCENARIOS) >= SHORT
