"""Points in time as people read them, always in UTC: "2026-03-01 12:00:05 UTC".

Where the day is plain, as in a line about the next minutes, the time of day is enough.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Final

from app.domain.units.errors import InvalidValue

_LAST_DAY: Final = date.max - timedelta(days=1)
"""The last one that ends."""


def format_instant(at: datetime) -> str:
    """ "2026-03-01 12:00:05 UTC"."""
    return f"{day_and_time(at)} UTC"


def day_and_time(at: datetime) -> str:
    """ "2026-03-01 12:00:05", below or beside a heading that says UTC."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def day_and_minute(at: datetime) -> str:
    """ "2026-03-01 12:00", where seconds tell nothing."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M}"


def day_of(at: datetime) -> str:
    """ "2026-03-01", the day in UTC."""
    return day_text(at.astimezone(UTC).date())


def day_text(day: date) -> str:
    """ "2026-03-01"."""
    return f"{day:%Y-%m-%d}"


def time_of_day(at: datetime) -> str:
    """ "12:00:05", where the day and UTC are plain."""
    return f"{at.astimezone(UTC):%H:%M:%S}"


def clock_time(at: datetime) -> str:
    """ "12:00:05 UTC", where the day is plain."""
    return f"{time_of_day(at)} UTC"


def usual_day(day: date | None) -> date | None:
    """The day of a filter, as it is. Raises InvalidValue for the one that never ends."""
    if day is not None and day > _LAST_DAY:
        raise InvalidValue(f"day: {_LAST_DAY} is the last day there is; give an earlier one", "day")
    return day
