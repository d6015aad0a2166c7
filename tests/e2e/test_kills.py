"""kill -9 of an agent, of one rank, of a whole machine, while training and while saving."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from tests.support.deployment.control_plane import ControlPlane, Document
from tests.support.deployment.followed_job import (
    FollowedJob,
    kill_agent,
    kill_machine,
    kill_rank,
    submit,
    submit_endless,
)

KILLS: dict[str, Callable[[ControlPlane, Document], object]] = {
    "agent": kill_agent,
    "rank": kill_rank,
    "machine": kill_machine,
}
ENDS = {
    "agent": ("failed", "agent_failed"),
    "rank": ("failed", "user_error"),
    "machine": ("interrupted", "machine_failed"),
}


def assert_recovered(job: FollowedJob, victim: str) -> None:
    """It succeeded with one attempt more, from a step that had been committed.

    Killed between a commit and the report of it, agent and machine have told of an earlier one.
    """
    first, second = job.attempts()
    assert (first["state"], first["end_reason"]) == ENDS[victim], job.story()
    assert second["state"] == "succeeded"
    assert second["parent_fence"] == first["fence"]
    assert second["parent_step"] >= first["committed_step"] > 0
    if victim == "rank":
        assert second["parent_step"] == first["committed_step"]


@pytest.mark.full
def test_gangs_survive_kills_while_they_train(plane: ControlPlane):
    jobs = {
        victim: submit_endless(plane, nodes=2, STEP_SECONDS=0.05, SAVE_EVERY=10) for victim in KILLS
    }
    for victim, job in jobs.items():
        job.until_committed(10)
        KILLS[victim](plane, job.machines()[1])
    for victim, job in jobs.items():
        job.go_on_in(2)
        job.assert_exact(job.end_here())
        assert_recovered(job, victim)


@pytest.mark.parametrize(
    "victims", [("machine",), pytest.param(("agent", "rank"), marks=pytest.mark.full)]
)
def test_gangs_survive_kills_while_they_save(plane: ControlPlane, victims: tuple[str, ...]):
    saves = {"SAVE_EVERY": 20, "SAVE_SECONDS": 0.5}
    jobs = {
        victim: submit_endless(plane, nodes=2, STEP_SECONDS=0.05, **saves) for victim in victims
    }
    for victim, job in jobs.items():
        job.until_committed(20)
        saver = job.machines()[0]
        plane.wait(partial(job.is_saving, saver), "a checkpoint is half written")
        KILLS[victim](plane, saver)
    for victim, job in jobs.items():
        job.go_on_in(2)
        job.assert_exact(job.end_here())
        assert_recovered(job, victim)


@pytest.mark.full
def test_two_ranks_of_pytorch_survive_the_kill_of_one(plane: ControlPlane):
    job = submit(
        plane,
        trainer={
            "model": "mlp",
            "data": "digits",
            "steps": 400,
            "step_delay_seconds": 0.02,
            "checkpoint_interval_steps": 20,
        },
        nodes=2,
        infra=["local"],
        resources={"gpu": "V100"},
    )
    job.until_committed(20)
    kill_rank(plane, job.machines()[1])
    job.finish()
    assert_recovered(job, "rank")
