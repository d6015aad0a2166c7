"""An elastic gang on real machines: it loses one for good, and goes on with the rest."""

from __future__ import annotations

import pytest

from tests.support.deployment.control_plane import ControlPlane
from tests.support.deployment.followed_job import submit_small

NOTICE_SECONDS = 8.0


@pytest.mark.full
def test_a_gang_whose_zone_is_full_goes_on_with_its_survivors(plane: ControlPlane):
    job = submit_small(plane, 160, nodes="2..4", STEP_SECONDS=0.05)
    job.until_step(5, fence=1)
    gang = job.machines()
    # A spot pool of the local cloud has four places; while the noticed machine stands none is free.
    assert len(gang) == 4
    shown = job.show()
    assert (shown["node_count"], shown["nodes"]) == (4, "2..4")
    job.interrupt(gang[-1], NOTICE_SECONDS)
    job.until_step(10, fence=2)
    assert {one["id"] for one in job.machines()} == {one["id"] for one in gang[:-1]}
    job.finish()
    job.assert_exact(160)
    assert [one["state"] for one in job.attempts()] == ["interrupted", "succeeded"]
    assert "3 machines of 2..4" in job.event("gang_sized")["message"]
    assert job.show()["node_count"] == 3
    ran = [one for one in job.released() if one["launched_at"] is not None]
    assert {one["id"] for one in ran} == {one["id"] for one in gang}
