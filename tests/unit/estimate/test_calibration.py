"""Shares under P90 and errors against P50, over the jobs that ended."""

from __future__ import annotations

from uuid import UUID

import pytest

from app.domain.estimate.calibration import Calibration, EstimateOutcome, calibration
from app.domain.units.percent import chances_text, percent


def job(cost: int, seconds: float, finish: float | None = 100.0) -> EstimateOutcome:
    """A job that was estimated at 10 (P50) to 20 (P90) micro-dollars and 50 to `finish` seconds."""
    p50 = None if finish is None else 50.0
    return EstimateOutcome(UUID(int=1), "j", 10, 20, p50, finish, cost, seconds)


def test_nothing_is_said_without_jobs():
    assert calibration([]) == Calibration(0, 0, None, None, None, None)


def test_shares_and_errors():
    found = calibration([job(10, 50), job(20, 100), job(21, 101), job(15, 75)])
    assert (found.jobs, found.cost_under_p90, found.finish_under_p90) == (4, 0.75, 0.75)
    assert found.cost_error == pytest.approx(0.75)
    assert found.finish_error == pytest.approx(0.75)


def test_a_finish_that_was_not_promised_is_not_judged():
    found = calibration([job(10, 50, finish=None), job(10, 200)])
    assert (found.jobs, found.finish_jobs) == (2, 1)
    assert (found.cost_under_p90, found.finish_under_p90) == (1.0, 0.0)


def test_a_share_is_told_the_same_everywhere():
    assert [percent(share) for share in (2 / 3, 0.29, 1.0)] == ["67 %", "29 %", "100 %"]
    assert chances_text(0.896, None) == "deadline 89 %"
    assert chances_text(None, None) == ""
