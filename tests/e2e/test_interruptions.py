"""Notices of a cloud, each for real: drained, replaced, resumed at the very step, paid once."""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise

import pytest

from tests.support.deployment.control_plane import ControlPlane, Document
from tests.support.deployment.followed_job import (
    SAVES_AT_NOTICES,
    FollowedJob,
    submit,
    submit_endless,
    submit_small,
)

NOTICE_SECONDS = 8.0


def at(event: dict[str, str]) -> datetime:
    """When an event was written."""
    return datetime.fromisoformat(event["at"])


def assert_resumed_exactly(job: FollowedJob, attempts: int = 2) -> None:
    """Every attempt went on where the one before it had drained: nothing was done again."""
    found = job.attempts()
    assert [one["state"] for one in found] == ["interrupted"] * (attempts - 1) + ["succeeded"]
    assert {one["end_reason"] for one in found[:-1]} == {"spot_interrupted"}
    for before, after in pairwise(found):
        assert (after["parent_fence"], after["parent_step"]) == (
            before["fence"],
            before["committed_step"],
        )
        assert before["best_step"] == before["committed_step"] > 0


def assert_replaced_at_once(job: FollowedJob, machine: Document) -> None:
    """Its cloud took the machine, and another one was asked for at the notice."""
    taken = next(one for one in job.released() if one["id"] == machine["id"])
    # Where the cloud's own ending makes nothing free, we give the machine back after the drain, and
    # its agent, told to leave, may turn it off before our call does.
    ours = {"us", "os_shutdown"} if machine["cloud"] == "gce" else set()
    assert taken["ended_by"] in {"cloud_interruption", *ours}
    noticed, asked = job.event("interruption_noticed"), job.event("replacement_requested")
    assert (at(asked) - at(noticed)).total_seconds() < 1.0


@pytest.mark.full
def test_the_trainer_goes_on_at_the_very_step_after_a_notice_of_google(plane: ControlPlane):
    place = {"infra": ["local/us-central1"], "resources": {"gpu": "H100"}}
    job = submit(plane, trainer=SAVES_AT_NOTICES, **place)
    job.until_step(20)
    [machine] = job.machines()
    assert machine["cloud"] == "gce"
    job.interrupt(machine, NOTICE_SECONDS)
    job.finish()
    assert_resumed_exactly(job)
    assert_replaced_at_once(job, machine)
    points = plane.get(f"/jobs/{job.id}/metrics", limit=5000)["items"]
    # Attempt 2 begins with the evaluation where attempt 1 left at the end of an epoch.
    steps = [point["step"] for point in points if "loss" in point["metrics"]]
    assert len(steps) > 20
    assert steps == sorted(set(steps)), "a step was reported by two attempts"


def test_a_command_goes_on_at_the_very_step_after_a_notice_of_amazon(plane: ControlPlane):
    job = submit_endless(plane, STEP_SECONDS=0.05, SAVE_EVERY=100_000)
    job.until_step(5)
    [machine] = job.machines()
    assert machine["cloud"] == "ec2"
    answer = plane.post(f"/instances/{machine['id']}/interrupt", {"notice_seconds": NOTICE_SECONDS})
    armed_at = datetime.fromisoformat(answer["ends_at"]).timestamp() - NOTICE_SECONDS
    job.go_on_in(2)
    job.assert_exact(job.end_here())
    assert_resumed_exactly(job)
    assert_replaced_at_once(job, machine)
    late = at(job.event("interruption_noticed")).timestamp() - armed_at
    print(f"notice -> agent -> control plane: {late:.2f} s")
    assert late < NOTICE_SECONDS, "the machine was gone before anybody knew of its notice"


@pytest.mark.full
def test_a_gang_saves_together_within_the_notice_of_one_machine(plane: ControlPlane):
    """The taken machine's share is in the store before it goes: not a step is done again."""
    job = submit(
        plane, trainer=SAVES_AT_NOTICES, nodes=2, infra=["local"], resources={"gpu": "V100"}
    )
    job.until_step(20)
    job.interrupt(job.machines()[1], NOTICE_SECONDS)
    job.finish()
    assert_resumed_exactly(job)


@pytest.mark.full
def test_a_notice_on_the_replacement_too(plane: ControlPlane):
    job = submit_endless(plane, nodes=2, STEP_SECONDS=0.05)
    job.until_step(5, fence=1)
    kept, taken = job.machines()
    job.interrupt(taken, NOTICE_SECONDS)
    job.go_on_in(2, steps=5)
    assert kept["id"] in {one["id"] for one in job.machines()}
    [replacement] = [one for one in job.machines() if one["id"] != kept["id"]]
    job.interrupt(replacement, NOTICE_SECONDS)
    job.go_on_in(3)
    job.assert_exact(job.end_here())
    assert_resumed_exactly(job, attempts=3)
    assert len(job.instances()) == 4
    zones = {one["zone"] for one in job.instances()}
    assert len(zones) == 1


# In make test: test_gangs_survive_kills_while_they_save[victims0] (test_kills.py).
@pytest.mark.full
def test_a_kill_without_notice(plane: ControlPlane):
    job = submit_endless(plane, STEP_SECONDS=0.05, SAVE_EVERY=10)
    job.until_committed(10)
    [machine] = job.machines()
    answer = plane.post(f"/instances/{machine['id']}/interrupt", {"notice_seconds": None})
    job.go_on_in(2)
    killed_at = datetime.fromisoformat(answer["ends_at"])
    [_, second] = job.instances()
    late = (datetime.fromisoformat(second["requested_at"]) - killed_at).total_seconds()
    print(f"kill without notice -> replacement requested: {late:.2f} s")
    assert late < 30.0
    job.assert_exact(job.end_here())
    [first, _] = job.attempts()
    assert (first["state"], first["end_reason"]) == ("interrupted", "spot_interrupted")


@pytest.mark.full
def test_a_notice_whose_kill_comes_after_the_work_is_done(plane: ControlPlane):
    job = submit_small(plane, 120, STEP_SECONDS=0.05)
    job.until_step(5)
    [machine] = job.machines()
    job.interrupt(machine, 3_000.0)
    job.finish()
    job.assert_exact(120)
    [attempt] = job.attempts()
    assert attempt["state"] == "succeeded"
    [only] = job.released()
    assert only["ended_by"] in ("us", "os_shutdown")
