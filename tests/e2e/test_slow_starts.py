"""A trainer that takes long to start, as real processes: one attempt, on the market it began on.

A start of a minute or two is scaled down to seconds; what the first steps seem to say of the pace
is as wrong here. At full length: own_deployment/test_slow_starts_at_length.py; the same in virtual
time, in each `make test`: tests/simulation/test_replayed_slow_starts.py.
"""

from __future__ import annotations

import pytest

from tests.support.deployment.control_plane import ControlPlane
from tests.support.deployment.followed_job import submit_small

pytestmark = pytest.mark.full


def test_a_start_almost_as_long_as_the_work_is_no_slow_pace(plane: ControlPlane):
    job = submit_small(
        plane,
        250,
        STEP_SECONDS=0.1,
        SAVE_EVERY=50,
        run="sleep 15; exec python3 small_trainer.py",
        deadline="180s",
        estimate={"hours": 0.01, "gpu": "V100"},
    )
    job.finish()
    job.assert_undisturbed()
