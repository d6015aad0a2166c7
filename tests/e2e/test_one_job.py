"""One machine, one command, no fault: from working folder to outputs, logs and a closed bill."""

from __future__ import annotations

from tests.support.deployment.control_plane import ControlPlane
from tests.support.deployment.followed_job import submit_small


def test_a_command_from_a_workdir_runs_to_its_end_and_is_paid_to_the_micro_dollar(
    plane: ControlPlane,
):
    job = submit_small(plane, 40, SAVE_EVERY=10, setup="echo set up > mark; cat mark")
    shown = job.finish()

    [attempt] = job.attempts()
    [machine] = job.released()
    assert (attempt["state"], attempt["end_reason"]) == ("succeeded", "finished")
    assert shown["progress"]["step"] == shown["progress"]["committed_step"] == 40
    # Told to leave, its agent may be quicker than our order to the cloud.
    assert machine["ended_by"] in ("us", "os_shutdown")
    job.assert_exact(40)
    assert "set up" in job.logs()

    points = plane.get(f"/jobs/{job.id}/checkpoints")["items"]
    assert (points[0]["step"], points[0]["final"]) == (40, True)
    losses = plane.get(f"/jobs/{job.id}/metrics")["items"]
    assert losses[-1]["metrics"]["loss"] == 1 / 40

    kinds = [event["kind"] for event in job.events()]
    assert len([kind for kind in kinds if kind == "checkpoint_committed"]) == len(points)

    plane.wait(lambda: job.show()["money"]["cost_final_at"] is not None, "the final cost")
    cost = plane.get(f"/jobs/{job.id}/cost", reconcile=True)
    assert cost["status"] == "reconciled"
    assert job.books()["booked_microusd"] == job.show()["money"]["spent_microusd"] > 0
