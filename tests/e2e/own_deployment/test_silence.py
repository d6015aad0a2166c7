"""A machine falls silent for good while its cloud still shows it: given up by force, and replaced.

Not here: silence of the control plane (`test_servers_die`), or machines that their cloud shows as
gone (`test_kills`).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from tests.e2e.conftest import SETTINGS
from tests.support.deployment.control_plane import ControlPlane, running_control_plane
from tests.support.deployment.followed_job import assert_all_books_close, processes, submit_endless

FORCE_SECONDS = 8.0


@pytest.fixture(scope="module")
def impatient_plane() -> Iterator[ControlPlane]:
    """A deployment that waits seconds, not minutes, for a silent machine."""
    with running_control_plane(
        {**SETTINGS, "LOWTIDE_FORCE_SILENCE_SECONDS": str(FORCE_SECONDS)}
    ) as found:
        yield found
        assert_all_books_close(found)


@pytest.mark.full
def test_a_machine_silent_for_long_is_ended_and_its_clouds_word_awaited(
    impatient_plane: ControlPlane,
) -> None:
    """Everything on it hangs, as after a fault of its kernel: no word, and no further step."""
    plane = impatient_plane
    job = submit_endless(plane, nodes=2, STEP_SECONDS=0.05, SAVE_EVERY=10)
    job.until_committed(10)
    survivor, hung = job.machines()
    for pid in processes(hung):
        os.kill(pid, signal.SIGSTOP)
    job.until(lambda one: one["attempts"]["count"] > 1, "another attempt begins")
    job.go_on_in(2)
    job.assert_exact(job.end_here())
    events = job.events()
    at = {event["kind"]: event["seq"] for event in reversed(events)}  # the first of each kind
    about = [event["kind"] for event in events if event["noun_id"] == hung["id"]]
    assert about[-3:] == ["instance_unreachable", "release_ordered", "absence_confirmed"], about
    # Nothing was decided on silence alone: the verdict came after the cloud had said it is gone.
    gone = next(
        event
        for event in events
        if event["kind"] == "absence_confirmed" and event["noun_id"] == hung["id"]
    )
    assert gone["seq"] < at["verdict_lost"], job.story()
    silent = next(event for event in events if event["kind"] == "release_ordered")
    assert "no report for" in silent["message"]
    first, second = job.attempts()
    assert (first["state"], first["end_reason"]) == ("lost", "contact_lost"), job.story()
    # It may have fallen silent between a commit and its report.
    assert second["parent_step"] >= first["committed_step"] > 0
    members = {member["instance_id"] for member in second["members"]}
    assert survivor["id"] in members, job.story()
    assert hung["id"] not in members
    assert len(job.released()) == 3, "two machines and one replacement"
