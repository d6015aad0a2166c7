"""Points in time as people read them, always in UTC: "2026-03-01 12:00:05 UTC".

Where the day is plain, as in a line about the next minutes, the time of day is enough.
"""

from __future__ import annotations

from datetime import UTC, datetime


def format_instant(at: datetime) -> str:
    """ "2026-03-01 12:00:05 UTC"."""
    return f"{day_and_time(at)} UTC"


def day_and_time(at: datetime) -> str:
    """ "2026-03-01 12:00:05", below or beside a heading that says UTC."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def time_of_day(at: datetime) -> str:
    """ "12:00:05", where the day and UTC are plain."""
    return f"{at.astimezone(UTC):%H:%M:%S}"


def clock_time(at: datetime) -> str:
    """ "12:00:05 UTC", where the day is plain."""
    return f"{time_of_day(at)} UTC"
