"""Points in time have one form for people, whatever zone they came in."""

from datetime import datetime, timedelta, timezone

from app.domain.units.instants import clock_time, day_and_time, format_instant, time_of_day

AT = datetime(2026, 3, 1, 1, 30, 5, 900_000, tzinfo=timezone(timedelta(hours=2)))


def test_an_instant_is_told_in_utc_to_the_second() -> None:
    assert format_instant(AT) == "2026-02-28 23:30:05 UTC"
    assert day_and_time(AT) == "2026-02-28 23:30:05"
    assert clock_time(AT) == "23:30:05 UTC"
    assert time_of_day(AT) == "23:30:05"
