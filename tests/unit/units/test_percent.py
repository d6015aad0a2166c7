"""How far a job is: one figure, rounded down, wherever it is shown."""

from __future__ import annotations

import pytest

from app.domain.units.percent import progress_percent


@pytest.mark.parametrize(
    ("step", "total", "percent"),
    [(0, 7, 0.0), (69, 1_000, 6.9), (6_999, 100_000, 6.9), (999_999, 1_000_000, 99.9),
     (7, 7, 100.0), (9, 7, 100.0)],
)  # fmt: skip
def test_progress_reaches_a_figure_no_sooner_than_the_work_does(
    step: int, total: int, percent: float
):
    assert progress_percent(step, total) == percent
