"""Notices that come before a machine is up: its place is given to another one."""

from __future__ import annotations

import pytest

from tests.support.deployment.control_plane import ControlPlane, Document
from tests.support.deployment.followed_job import FollowedJob, submit_small


@pytest.mark.full  # the simulation has a notice while booting in every run
@pytest.mark.parametrize("notice_seconds", [8.0, 1.0, None])
def test_a_notice_while_the_machine_boots(rough_plane: ControlPlane, notice_seconds: float | None):
    job = submit_small(rough_plane, 40, nodes=2, STEP_SECONDS=0.05)
    job.until(lambda _: len(launched(job)) == 2, "both machines are booting")
    [first, second] = launched(job)
    assert first["registered_at"] is second["registered_at"] is None
    job.interrupt(second, notice_seconds)
    job.finish()
    job.assert_exact(40)
    # With a long notice its agent may register first, and then the gang forms once more.
    *before, last = job.attempts()
    assert [(one["state"], one["best_step"]) for one in before] in ([], [("interrupted", 0)])
    members = {member["instance_id"] for member in last["members"]}
    assert first["id"] in members, job.story()
    assert second["id"] not in members
    assert len(job.instances()) == 3


def launched(job: FollowedJob) -> list[Document]:
    """Machines that the cloud has started."""
    return [one for one in job.instances() if one["launched_at"] is not None]
