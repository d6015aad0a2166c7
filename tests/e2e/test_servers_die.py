"""The control plane dies in parts or goes silent while a job trains: training must not notice."""

from __future__ import annotations

import time
from collections import Counter

import httpx
import redis

from tests.support.control_plane import ControlPlane
from tests.support.followed_job import FollowedJob, submit_small

AWAY_SECONDS = 60.0

# What a recovery begins with, or would have begun with.
RECOVERED = {"member_gone", "stop_observed", "replacement_requested", "attempt_ended_retryable"}


def assert_nothing_happened_to(job: FollowedJob, steps: int) -> None:
    """One attempt did all the work on the machines it began with, and was told of it once."""
    job.finish()
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


def test_every_server_is_killed_in_turn(rough_plane: ControlPlane):
    job = submit_small(rough_plane, 400, nodes=2, STEP_SECONDS=0.1, SAVE_EVERY=20)
    job.until_step(5)
    for program in ("worker", "api", "beat", "postgres", "valkey"):
        rough_plane.restart_by_kill(program)
    with redis.Redis.from_url(rough_plane.valkey_url()) as valkey:
        rough_plane.wait(lambda: bool(_answers(valkey)), "valkey answers", 30)
        valkey.flushall()
    rough_plane.wait(lambda: _is_ready(rough_plane), "the api is ready", 60)
    at = job.show()["progress"]["step"]
    assert at < 400, "the job was over before the last server came back"
    assert_nothing_happened_to(job, 400)


def test_the_control_plane_is_away_for_a_while(rough_plane: ControlPlane):
    """Training and saving go on; what was said meanwhile arrives once, and nothing is recovered."""
    job = submit_small(rough_plane, 800, nodes=2, STEP_SECONDS=0.1, SAVE_EVERY=20)
    job.until_step(5)
    members = [machine["id"] for machine in job.machines()]
    with rough_plane.stopped("api", "worker", "beat"):
        time.sleep(AWAY_SECONDS)
    heard = job.until_step(5 + int(AWAY_SECONDS / 0.1 / 3))
    assert heard["progress"]["committed_step"] > 5
    assert [machine["id"] for machine in job.machines()] == members
    assert_nothing_happened_to(job, 800)
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
