"""Trainers that take long to start, as real processes: one attempt, on the market it began on.

The short tests scale a start of a minute or two down to seconds; what the first steps seem to say
of the pace is as wrong in them. The long ones run at full length.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.control_plane import ControlPlane, running_control_plane
from tests.support.followed_job import FollowedJob, submit, submit_small

SLOW_IMPORT = """
import sys, time
if "trainer.training.train" in sys.orig_argv and "torch.distributed.run" not in sys.orig_argv:
    time.sleep({seconds})
"""
"""A sitecustomize.py: every rank of the bundled trainer starts so much later."""

MOVES = {"moved_to_on_demand", "moved_to_spot", "deadline_unsafe"}


def assert_undisturbed(job: FollowedJob) -> None:
    """One attempt made all of it; nobody asked for another market, or feared for the deadline."""
    shown = job.show()
    kinds = [event["kind"] for event in job.events()]
    assert not MOVES.intersection(kinds), job.story()
    [attempt] = job.attempts()
    assert (attempt["state"], attempt["end_reason"]) == ("succeeded", "finished"), job.story()
    assert shown["deadline"]["missed_at"] is None
    assert {one["market"] for one in job.instances()} == {"spot"}


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
    assert_undisturbed(job)


@pytest.fixture(scope="module")
def unhurried_plane() -> Iterator[ControlPlane]:
    """A deployment with the times that `lowtide up` has by itself."""
    with running_control_plane() as found:
        yield found


@pytest.mark.full
@pytest.mark.timeout(2_700)
def test_ninety_seconds_of_start_and_nine_hundred_of_steps(unhurried_plane: ControlPlane):
    job = submit_small(
        unhurried_plane,
        900,
        STEP_SECONDS=1.0,
        SAVE_EVERY=120,
        run="sleep 90; exec python3 small_trainer.py",
        deadline="90m",
        estimate={"hours": 0.3, "gpu": "V100"},
    )
    job.finish(seconds=2_400.0)
    assert_undisturbed(job)


@pytest.mark.full
@pytest.mark.timeout(2_700)
def test_the_tour_with_two_minutes_of_imports(unhurried_plane: ControlPlane, tmp_path: Path):
    (tmp_path / "sitecustomize.py").write_text(SLOW_IMPORT.format(seconds=120))
    tmp_path.chmod(0o755)
    job = submit(
        unhurried_plane,
        name="tour",
        trainer={"model": "cnn", "data": "digits", "steps": 2000, "step_delay_seconds": 0.2},
        resources={"gpu": "V100"},
        infra=["local"],
        env={"PYTHONPATH": str(tmp_path)},
        nodes=2,
        deadline="2h",
        budget_usd=50,
    )
    job.finish(seconds=2_400.0)
    assert_undisturbed(job)
