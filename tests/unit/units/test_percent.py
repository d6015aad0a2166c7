"""How far a job is: one figure, rounded down, wherever it is shown; and the forms of shares."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone

import pytest

from app.domain.units.instants import day_and_minute, day_of, day_text
from app.domain.units.percent import against, change, percent_fine, progress_percent
from app.web import formats


@pytest.mark.parametrize(
    ("step", "total", "percent"),
    [(0, 7, 0.0), (69, 1_000, 6.9), (6_999, 100_000, 6.9), (999_999, 1_000_000, 99.9),
     (7, 7, 100.0), (9, 7, 100.0)],
)  # fmt: skip
def test_progress_reaches_a_figure_no_sooner_than_the_work_does(
    step: int, total: int, percent: float
):
    assert progress_percent(step, total) == percent


def test_percent_has_a_space_and_a_difference_its_sign():
    assert [percent_fine(share) for share in (0.1234, 0.0, 1.0)] == ["12.3 %", "0.0 %", "100.0 %"]
    assert [change(by) for by in (-0.84, 0.04, 0.001, -0.001)] == ["-84 %", "+4 %", "0 %", "0 %"]
    assert against(0.3) == "-70 %"


def test_days_and_times_have_one_form_in_utc():
    late = datetime(2026, 10, 31, 23, 30, 5, tzinfo=timezone(-timedelta(hours=2)))
    assert (day_of(late), day_and_minute(late)) == ("2026-11-01", "2026-11-01 01:30")
    assert day_text(date(2026, 11, 1)) == "2026-11-01"
    assert (formats.change(-0.17), formats.against(0.3)) == ("-17 %", "-70 %")
