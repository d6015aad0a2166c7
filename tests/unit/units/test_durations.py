"""Durations as people write them, and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.units.durations import (
    MAX_DURATION_SECONDS,
    duration_text,
    format_duration,
    parse_duration,
)
from app.domain.units.errors import InvalidValue


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
    assert parse_duration(format_duration(seconds)) == seconds


def test_forms_for_people_and_for_storage() -> None:
    assert format_duration(5_400) == "1h 30m"
    assert format_duration(-90) == "-1m 30s"
    assert format_duration(0) == "0s"
    assert duration_text(129_600) == "36h"
    assert duration_text(172_800) == "2d"
