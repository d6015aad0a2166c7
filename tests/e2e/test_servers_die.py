"""The control plane dies in parts or goes silent while a job trains: training must not notice."""

from __future__ import annotations

import time
from collections import Counter

import httpx
import pytest
import redis

from tests.support.deployment.control_plane import ControlPlane
from tests.support.deployment.followed_job import FollowedJob, submit_endless
from tests.support.servers.embedded import is_running

AWAY_SECONDS = 60.0

# What a recovery begins with, or would have begun with.
RECOVERED = {"member_gone", "stop_observed", "replacement_requested", "attempt_ended_retryable"}


def assert_nothing_happened_to(job: FollowedJob) -> None:
    """One attempt did all the work on the machines it began with, and was told of it once."""
    steps = job.end_here()
    job.assert_exact(steps)
    [attempt] = job.attempts()
    assert attempt["state"] == "succeeded"
    assert len(job.instances()) == len(attempt["members"]), job.story()
    told = Counter(
        (event["kind"], event["data"]["fence"], event["data"]["step"])
        for event in job.events()
        if event["kind"] == "checkpoint_committed"
    )
    assert set(told.values()) == {1}, told
    assert len(told) == len(job.plane.get(f"/jobs/{job.id}/checkpoints")["items"])
    numbers = [event["seq"] for event in job.events()]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    once = ["trainer_started", "attempt_succeeded", "all_members_finished"]
    kinds = Counter(event["kind"] for event in job.events())
    assert [kinds[kind] for kind in once] == [1, 1, 1], kinds
    log = job.logs()
    assert log.count(f"finished {steps}") == len(attempt["members"]), log


def test_every_server_is_killed_in_turn(plane: ControlPlane):
    job = submit_endless(plane, nodes=2, STEP_SECONDS=0.1, SAVE_EVERY=20)
    job.until_step(5)
    for program in ("worker", "api", "beat", "postgres", "valkey"):
        plane.restart_by_kill(program)
    with redis.Redis.from_url(plane.valkey_url()) as valkey:
        plane.wait(lambda: bool(_answers(valkey)), "valkey answers")
        valkey.flushall()
    plane.wait(lambda: _is_ready(plane), "the api is ready")
    job.until_step(job.show()["progress"]["step"] + 25)
    assert_nothing_happened_to(job)


# tests/integration/embedded/test_programs.py shows what is cleared before the port
@pytest.mark.full
def test_the_supervisor_is_killed_and_the_same_command_goes_on(rough_plane: ControlPlane):
    """Twice in a row, the second time in the middle of its start, as systemd would meet it."""
    job = submit_endless(rough_plane, nodes=2, STEP_SECONDS=0.1, SAVE_EVERY=20)
    job.until_step(5)
    url, left = rough_plane.url, rough_plane.pids()
    rough_plane.kill_supervisor()
    rough_plane.up_again()
    old = (None, left["postgres"])
    rough_plane.wait(lambda: rough_plane.pids().get("postgres") not in old, "half a start")
    said = rough_plane.output.read_text("utf-8")
    assert "stopped what an earlier run left behind" in said
    assert all(name in said for name in left if name != "lowtide")
    rough_plane.kill_supervisor()
    rough_plane.up_again()
    rough_plane.await_ready()
    assert rough_plane.url == url
    assert not {pid for pid in left.values() if is_running(pid)}
    job.until_step(job.show()["progress"]["step"] + 25)
    assert_nothing_happened_to(job)


@pytest.mark.full
def test_the_control_plane_is_away_for_a_while(rough_plane: ControlPlane):
    """Training and saving go on; what was said meanwhile arrives once, and nothing is recovered."""
    job = submit_endless(rough_plane, nodes=2, STEP_SECONDS=0.1, SAVE_EVERY=20)
    job.until_step(5)
    members = [machine["id"] for machine in job.machines()]
    with rough_plane.stopped("api", "worker", "beat"):
        time.sleep(AWAY_SECONDS)
    job.until_step(5 + int(AWAY_SECONDS / 0.1 / 3))
    job.until_committed(6)
    assert [machine["id"] for machine in job.machines()] == members
    assert_nothing_happened_to(job)
    kinds = {event["kind"] for event in job.events()}
    assert not kinds & RECOVERED, job.story()


def _answers(valkey: redis.Redis) -> bool:
    try:
        return bool(valkey.ping())
    except redis.RedisError:
        return False


def _is_ready(plane: ControlPlane) -> bool:
    try:
        return plane.api.get(plane.url + "/readyz").status_code == 200
    except httpx.TransportError:
        return False
