"""Durations as people write them, and back; points in time have one form for people."""

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.units.durations import (
    MAX_DURATION_SECONDS,
    duration_text,
    exact_duration,
    format_duration,
    measured_duration,
    parse_duration,
    stopwatch,
    whole_minutes,
)
from app.domain.units.errors import InvalidValue
from app.domain.units.instants import clock_time, day_and_time, format_instant, time_of_day


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("36h", 129_600),
        ("15m", 900),
        ("90s", 90),
        ("2d", 172_800),
        ("1h30m", 5_400),
        ("1h 30m", 5_400),
        (" 1d2h3m4s ", 93_784),
        ("0s", 0),
        ("365d", MAX_DURATION_SECONDS),
    ],
)
def test_reads_a_duration(written: str, seconds: int) -> None:
    assert parse_duration(written) == seconds


@pytest.mark.parametrize(
    "written",
    ["", " ", "h", "15", "30m1h", "1h1h", "1.5h", "1w", "15 m", "1h\n30m", "٣h", True, None, ["1h"],
     90, 1.5, "1h" * 1_000],
)  # fmt: skip
def test_refuses_what_is_no_duration(written: object) -> None:
    with pytest.raises(InvalidValue, match="write it as"):
        parse_duration(written)


def test_refuses_what_is_out_of_bounds() -> None:
    with pytest.raises(InvalidValue, match="negative"):
        parse_duration("-5m")
    with pytest.raises(InvalidValue, match="at most 365d"):
        parse_duration("366d")
    with pytest.raises(InvalidValue, match="at most 365d"):
        parse_duration("999999999d")
    with pytest.raises(InvalidValue, match="at least 1m"):
        parse_duration("59s", at_least_seconds=60)


@given(st.integers(0, MAX_DURATION_SECONDS))
def test_both_written_forms_are_read_back(seconds: int) -> None:
    assert parse_duration(duration_text(seconds)) == seconds
    assert parse_duration(exact_duration(seconds)) == seconds


@pytest.mark.parametrize(
    ("seconds", "two_units", "every_unit", "measured"),
    [
        (0, "0s", "0s", "0s"),
        (59, "59s", "59s", "59s"),
        (5_400, "1h 30m", "1h 30m", "1h 30m"),
        (3_725, "1h 2m", "1h 2m 5s", "1h 2m"),
        (86_400, "1d", "1d", "1d"),
        (95_405, "1d 2h", "1d 2h 30m 5s", "1d 2h"),
    ],
)
def test_people_read_one_form(seconds: int, two_units: str, every_unit: str, measured: str) -> None:
    assert format_duration(seconds) == two_units
    assert exact_duration(seconds) == every_unit
    assert measured_duration(seconds) == measured
    assert format_duration(-90) == exact_duration(-90) == "-1m 30s"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.004, "0.004s"), (0.416, "0.42s"), (1.0, "1s"), (3.14, "3.1s"), (9.96, "10s"), (46, "46s")],
)
def test_a_short_time_keeps_its_fraction(seconds: float, text: str) -> None:
    assert measured_duration(seconds) == text


def test_a_limit_is_never_told_as_less_than_it_is() -> None:
    assert whole_minutes(38_121.3) == "10h 36m"
    assert whole_minutes(95_401) == "1d 2h 31m"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (84.9, "1:24"), (3_725, "1:02:05"), (-84, "-1:24")]
)
def test_a_place_on_a_time_axis_is_a_stopwatch(seconds: float, text: str) -> None:
    assert stopwatch(seconds) == text


def test_forms_for_people_and_for_storage() -> None:
    assert format_duration(5_400) == "1h 30m"
    assert format_duration(-90) == "-1m 30s"
    assert format_duration(0) == "0s"
    assert duration_text(129_600) == "36h"
    assert duration_text(172_800) == "2d"


AT = datetime(2026, 3, 1, 1, 30, 5, 900_000, tzinfo=timezone(timedelta(hours=2)))


def test_an_instant_is_told_in_utc_to_the_second() -> None:
    assert format_instant(AT) == "2026-02-28 23:30:05 UTC"
    assert day_and_time(AT) == "2026-02-28 23:30:05"
    assert clock_time(AT) == "23:30:05 UTC"
    assert time_of_day(AT) == "23:30:05"
