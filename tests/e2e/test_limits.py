"""Every limit of a job ends or pauses it in its own way, with what was done saved first.

All jobs but those that people pause and resume are submitted at once: they mostly wait.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from tests.support.deployment.control_plane import ControlPlane
from tests.support.deployment.followed_job import FollowedJob, submit, submit_small

ESTIMATE = {"hours": 0.001}
PLACE = {"infra": ["local"], "resources": {"gpu": "V100"}}
SLOW = {"STEP_SECONDS": 0.05, "SAVE_EVERY": 1_000}
# Half a minute and more: what the budget pays for beside saving and releasing the machine.
BUDGETED_STEPS = 800
TELL_OOM = """echo '{"message": "CUDA out of memory"}' > "$TORCHELASTIC_ERROR_FILE"; exit 1"""

Submit = Callable[[ControlPlane], FollowedJob]
JOBS: dict[str, Submit] = {
    "budget": lambda plane: submit_small(
        plane, BUDGETED_STEPS, STEP_SECONDS=0.05, budget_usd="0.90", estimate=ESTIMATE
    ),
    "deadline": lambda plane: submit_small(plane, 500, **SLOW, deadline="32s", estimate=ESTIMATE),
    "deadline that stops": lambda plane: submit_small(
        plane, 4_000, **SLOW, deadline="25s", on_deadline="stop", market="spot", estimate=ESTIMATE
    ),
    "duration": lambda plane: submit_small(plane, 4_000, **SLOW, max_duration="10s"),
    "wait": lambda plane: submit_small(plane, 10, resources={"gpu": "H100:8"}, max_wait="3s"),
    "stall": lambda plane: submit_small(
        plane, 40, nodes=2, HANG_AT=15, stall_timeout="8s", retries=0
    ),
    "retries": lambda plane: submit(plane, run="echo no luck; exit 3", retries=1, **PLACE),
    "memory": lambda plane: submit(plane, run=TELL_OOM, retries=3, **PLACE),
}


@pytest.fixture(scope="module")
def jobs(plane: ControlPlane) -> dict[str, FollowedJob]:
    """All of JOBS, submitted together."""
    return {name: make(plane) for name, make in JOBS.items()}


def ended_for(job: FollowedJob, state: str, reason: str) -> dict[str, Any]:
    """The job at its end, which must be this one."""
    shown = job.finish(state=state)
    assert shown["end_reason"] == reason, job.story()
    return shown


def test_the_bill_stays_below_the_cap_and_more_of_it_goes_on(
    plane: ControlPlane, jobs: dict[str, FollowedJob]
):
    job = jobs["budget"]
    paused = job.until_state("paused")
    assert paused["end_reason"] == "budget_exhausted"
    done = paused["progress"]["committed_step"]
    assert 0 < done == paused["progress"]["step"]
    plane.wait(lambda: not job.show()["machines"], "the machine is given back")
    plane.wait(lambda: job.books()["closed"] and job.books()["invoiced"] == 1, "it is billed")
    money = job.show()["money"]
    assert 0 < money["spent_microusd"] <= money["budget_microusd"], money
    plane.post(f"/jobs/{job.id}/resume", {"add_budget_usd": "+5"})
    job.finish()
    job.assert_exact(BUDGETED_STEPS)
    first, second = job.attempts()
    assert (first["state"], first["end_reason"]) == ("stopped", "budget_exhausted")
    assert second["parent_step"] == done


def test_max_duration_saves_and_fails(jobs: dict[str, FollowedJob]):
    shown = ended_for(jobs["duration"], "failed", "max_duration_reached")
    assert shown["progress"]["committed_step"] == shown["progress"]["step"] > 10


def test_max_wait_gives_up_when_nothing_fits(jobs: dict[str, FollowedJob]):
    ended_for(jobs["wait"], "failed", "max_wait_reached")
    assert not jobs["wait"].instances()


def test_a_stall_leaves_the_stacks_of_every_rank(jobs: dict[str, FollowedJob]):
    ended_for(jobs["stall"], "failed", "stalled")
    logs = jobs["stall"].logs()
    for node in (0, 1):
        assert f"node-{node}.log" in logs
    assert logs.count("most recent call first") == 2, logs


def test_retries_are_used_up_by_the_users_own_error(jobs: dict[str, FollowedJob]):
    shown = ended_for(jobs["retries"], "failed", "user_error")
    assert "exit code 3" in shown["why"]
    assert len(jobs["retries"].attempts()) == 2
    assert "no luck" in jobs["retries"].logs()


def test_out_of_memory_is_not_tried_again(jobs: dict[str, FollowedJob]):
    ended_for(jobs["memory"], "failed", "out_of_memory")
    assert len(jobs["memory"].attempts()) == 1


def test_a_deadline_that_stops(jobs: dict[str, FollowedJob]):
    shown = ended_for(jobs["deadline that stops"], "failed", "deadline_passed")
    assert shown["progress"]["committed_step"] == shown["progress"]["step"] > 0


# test_the_bill_stays_below_the_cap_and_more_of_it_goes_on resumes what was paused, too; a person's
# pause is in tests/integration/gang/test_orchestration_stops.py.
@pytest.mark.full
def test_a_person_pauses_and_resumes(plane: ControlPlane):
    job = submit_small(plane, 120, **SLOW)
    job.until_step(10)
    plane.post(f"/jobs/{job.id}/pause")
    paused = job.until_state("paused")
    assert paused["end_reason"] == "user_paused"
    plane.post(f"/jobs/{job.id}/resume")
    job.finish()
    job.assert_exact(120)
    assert job.attempts()[1]["parent_step"] == paused["progress"]["committed_step"]


def test_a_deadline_moves_to_on_demand_and_acquires_before_it_releases(
    jobs: dict[str, FollowedJob],
):
    job = jobs["deadline"]
    job.finish()
    job.assert_exact(500)
    first, second = job.attempts()
    assert (first["state"], first["end_reason"]) == ("yielded", "migrated"), job.story()
    [spot], [on_demand] = (
        [one for one in job.instances() if one["market"] == market]
        for market in ("spot", "on_demand")
    )
    assert [member["instance_id"] for member in second["members"]] == [on_demand["id"]]
    released = next(
        event
        for event in job.events()
        if event["kind"] == "release_ordered" and event["noun_id"] == spot["id"]
    )
    ready_at = datetime.fromisoformat(on_demand["registered_at"])
    assert ready_at <= datetime.fromisoformat(first["ended_at"])
    assert ready_at <= datetime.fromisoformat(released["at"])
    assert second["parent_step"] == first["best_step"]
