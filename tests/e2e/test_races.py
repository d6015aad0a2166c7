"""Commands and writers that race: one effect of each, and never one that was cut off."""

from __future__ import annotations

import json
import os
import signal
import time

import pytest

from tests.support.deployment.control_plane import ControlPlane, Document
from tests.support.deployment.followed_job import (
    FollowedJob,
    rank_pid,
    submit_endless,
    submit_small,
)
from trainer.agent.checkpoints.checkpoint_sync import list_fences
from trainer.agent.checkpoints.storage_root import StorageRoot
from trainer.protocol.checkpoint_manifest import FenceRecord, fence_key, load_manifest, manifest_key
from trainer.protocol.wire import encode

CANCELLED_JOBS = 10


def test_cancel_races_the_launch_and_leaves_no_machine(plane: ControlPlane):
    jobs = []
    for number in range(CANCELLED_JOBS):
        job = submit_small(plane, 1_000, STEP_SECONDS=0.05)
        # From before the claim to after the cloud's answer, in steps of 40 ms.
        time.sleep(0.04 * number)
        plane.post(f"/jobs/{job.id}/cancel", {"now": True})
        jobs.append(job)
    for job in jobs:
        shown = job.finish(state="cancelled")
        assert shown["end_reason"] == "user_cancelled", job.story()
    plane.wait(lambda: not plane.get("/instances", live=True)["items"], "no machine is left")


def test_one_idempotency_key_is_one_job(plane: ControlPlane):
    spec = {"run": "true", "infra": ["local"], "resources": {"gpu": "V100"}, "name": "only-one"}
    headers = {"Idempotency-Key": "the-same-key"}
    first, again = (plane.api.post("/jobs", json=spec, headers=headers) for _ in range(2))
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["id"] == again.json()["id"]
    other = plane.api.post("/jobs", json={**spec, "run": "false"}, headers=headers)
    assert other.status_code == 409
    assert other.headers["content-type"].startswith("application/problem+json")
    named = plane.get("/jobs", name="only-one")["items"]
    assert [one["id"] for one in named] == [first.json()["id"]]
    job = FollowedJob(plane, first.json()["id"])
    plane.job_ids.append(job.id)
    job.finish()


# The agent: test_cut_off_by_a_later_fence (tests/integration/agent/test_agent_run.py); the control
# plane: tests/integration/agents/test_orchestration_fences.py and
# tests/simulation/test_rules_can_fail.py.
@pytest.mark.full
def test_a_writer_that_was_cut_off_cannot_extend_the_lineage(plane: ControlPlane):
    """Another attempt's fence record appears while a machine trains on, as after a partition."""
    job = submit_endless(plane, STEP_SECONDS=0.05, SAVE_EVERY=20)
    job.until_committed(20)
    [machine] = job.machines()
    pid = rank_pid(machine)
    _stop_between_saves(plane, job, machine, pid)
    store = StorageRoot(f"file://{plane.state_dir}/store/checkpoints/{job.id}")
    plane.wait(lambda: _is_quiet(job, store), "what was saved is committed")
    step = job.show()["progress"]["committed_step"]
    parent = load_manifest(store.get(manifest_key(1, step))).ref
    record = FenceRecord(2, parent, "a-machine-of-the-next-attempt")
    store.put_new(fence_key(2), json.dumps(encode(record)).encode())
    os.kill(pid, signal.SIGCONT)

    job.go_on_in(3)
    steps = job.end_here()
    fenced = job.event("attempt_fenced")
    assert (fenced["data"]["fence"], fenced["data"]["by_fence"]) == (1, 2)
    first, second = job.attempts()[:2]
    assert first["committed_step"] == second["parent_step"] == step
    # Whoever wrote fence 2 may be alive: the next attempt of ours does not share it.
    assert (first["end_reason"], second["fence"]) == ("fenced_off", 3)
    assert list_fences(store) == [1, 2, 3]
    later = [key for key in store.list_keys("manifests") if key > manifest_key(1, step)]
    assert later
    assert all(key.startswith("manifests/0000000003/") for key in later), later
    job.assert_exact(steps)


def _stop_between_saves(plane: ControlPlane, job: FollowedJob, machine: Document, pid: int) -> None:
    """SIGSTOP the trainer at a moment at which no checkpoint is half written."""

    def stopped() -> bool:
        os.kill(pid, signal.SIGSTOP)
        if not job.is_saving(machine):
            return True
        os.kill(pid, signal.SIGCONT)
        return False

    plane.wait(stopped, "it does not save")


def _is_quiet(job: FollowedJob, store: StorageRoot) -> bool:
    """Everything that the store holds is known, and nothing is half saved."""
    [machine] = job.machines()
    known = job.show()["progress"]["committed_step"]
    newest = max(store.list_keys("manifests"), default="")
    return not job.is_saving(machine) and newest == manifest_key(1, known)
