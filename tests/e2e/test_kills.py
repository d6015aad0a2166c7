"""kill -9 of an agent, of one rank, of a whole machine, while training and while saving."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.control_plane import ControlPlane, Document
from tests.support.followed_job import (
    FollowedJob,
    kill_agent,
    kill_machine,
    kill_rank,
    submit,
    submit_small,
)

KILLS: dict[str, Callable[[Document], object]] = {
    "agent": kill_agent,
    "rank": kill_rank,
    "machine": kill_machine,
}
STEPS = 80


def assert_recovered(job: FollowedJob) -> None:
    """It succeeded with one attempt more, from a step that had been committed."""
    job.finish()
    print("\n".join(x for x in job.story().splitlines() if x.startswith("  ") and "checkpoint_comm" not in x))
    first, second = job.attempts()
    assert first["state"] in ("failed", "lost", "interrupted"), job.story()
    assert second["state"] == "succeeded"
    assert second["parent_step"] == first["committed_step"]


@pytest.mark.parametrize("victim", KILLS)
def test_a_gang_survives_a_kill_while_it_trains(plane: ControlPlane, victim: str):
    job = submit_small(plane, STEPS, nodes=2, STEP_SECONDS=0.05, SAVE_EVERY=10)
    job.until_committed(10)
    KILLS[victim](job.machines()[1])
    assert_recovered(job)
    job.assert_exact(STEPS)


@pytest.mark.parametrize("victim", KILLS)
def test_a_gang_survives_a_kill_while_it_saves(plane: ControlPlane, victim: str):
    job = submit_small(plane, STEPS, nodes=2, STEP_SECONDS=0.05, SAVE_EVERY=20, SAVE_SECONDS=0.5)
    job.until_committed(20)
    saver = job.machines()[0]
    plane.wait(lambda: job.is_saving(saver), "a checkpoint is half written", 30)
    KILLS[victim](saver)
    assert_recovered(job)
    job.assert_exact(STEPS)


def test_two_ranks_of_pytorch_survive_the_kill_of_one(plane: ControlPlane):
    job = submit(
        plane,
        trainer={
            "model": "mlp",
            "data": "digits",
            "steps": 200,
            "step_delay_seconds": 0.02,
            "checkpoint_interval_steps": 20,
        },
        nodes=2,
        infra=["local"],
        resources={"gpu": "V100"},
    )
    job.until_committed(20)
    kill_rank(job.machines()[1])
    assert_recovered(job)
