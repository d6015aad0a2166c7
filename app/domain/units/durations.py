"""Durations as people write them ("36h", "1h30m"), to whole seconds, and as people read them.

Every length of time on a page, in a command's output or in a sentence has the form "1h 30m".
Points in time are in `instants`.
"""

import math
import re
from functools import lru_cache

from app.domain.units.errors import InvalidValue

MINUTE_SECONDS = 60
HOUR_SECONDS = 3_600
DAY_SECONDS = 86_400
MAX_DURATION_SECONDS = 365 * DAY_SECONDS

_UNITS = (("d", DAY_SECONDS), ("h", HOUR_SECONDS), ("m", MINUTE_SECONDS), ("s", 1))
_DURATION_TEXT = re.compile(
    r"(?=[0-9])(?:([0-9]{1,9})d ?)?(?:([0-9]{1,9})h ?)?(?:([0-9]{1,9})m ?)?(?:([0-9]{1,9})s)?",
    re.ASCII,
)
_HOW = "write it as 90s, 15m, 36h, 2d or 1h30m"


def parse_duration(text: object, *, at_least_seconds: int = 0) -> int:
    """Seconds for "36h", "15m", "90s", "2d", "1h30m" or "1h 30m" (units descending, once each).

    Raises InvalidValue for anything else (a bare number has no unit and is refused), for less than
    `at_least_seconds` and for more than 365 days.
    """
    if isinstance(text, int | float) and not isinstance(text, bool):
        raise InvalidValue(f"is a number without a unit; {_HOW}")
    if not isinstance(text, str):
        raise InvalidValue(f"must be a duration, not {type(text).__name__}; {_HOW}")
    stripped = text.strip()
    if stripped.startswith("-"):
        raise InvalidValue("must not be negative")
    seconds = _seconds_of(stripped)
    if seconds < at_least_seconds:
        raise InvalidValue(f"must be at least {exact_duration(at_least_seconds)}")
    if seconds > MAX_DURATION_SECONDS:
        raise InvalidValue("must be at most 365d")
    return seconds


@lru_cache(maxsize=1024)
def _seconds_of(text: str) -> int:
    """People write the same few durations again and again; a text that is none is not kept."""
    match = _DURATION_TEXT.fullmatch(text)
    if match is None:
        raise InvalidValue(f"is not a duration; {_HOW}")
    counts = (int(group or 0) for group in match.groups())
    return sum(count * unit for count, (_, unit) in zip(counts, _UNITS, strict=True))


def format_duration(seconds: float) -> str:
    """For people, in its two largest units: 5400 → "1h 30m", 90061 → "1d 1h", -90 → "-1m 30s".

    Rounded to the second; below the second unit it is cut off. A limit that people go by is written
    by `exact_duration`, a short time that was measured by `measured_duration`.
    """
    whole = round(abs(seconds))
    for unit, finer in ((DAY_SECONDS, HOUR_SECONDS), (HOUR_SECONDS, MINUTE_SECONDS)):
        if whole >= unit:
            whole -= whole % finer
            break
    return exact_duration(-whole if seconds < 0 else whole)


def exact_duration(seconds: int) -> str:
    """For people, with every unit: 95400 → "1d 2h 30m", 0 → "0s", -90 → "-1m 30s"."""
    if seconds < 0:
        return f"-{exact_duration(-seconds)}"
    parts = []
    rest = seconds
    for name, unit in _UNITS:
        count, rest = divmod(rest, unit)
        if count:
            parts.append(f"{count}{name}")
    return " ".join(parts) or "0s"


def measured_duration(seconds: float) -> str:
    """For people, of what was measured or may be short: 0.42 → "0.42s", 3.14 → "3.1s"."""
    return format_duration(seconds) if seconds >= 9.95 else f"{round(seconds, 3):.2g}s"


def whole_minutes(seconds: float) -> str:
    """For people, to the next minute that is not less: 38121.3 → "10h 36m"."""
    return exact_duration(math.ceil(seconds / MINUTE_SECONDS) * MINUTE_SECONDS)


def stopwatch(seconds: float) -> str:
    """A place on a time axis: 0 → "0:00", 84 → "1:24", 3725 → "1:02:05"."""
    sign, whole = ("-" if seconds < 0 else ""), int(abs(seconds))
    hours, rest = divmod(whole, HOUR_SECONDS)
    minutes, second = divmod(rest, MINUTE_SECONDS)
    if hours:
        return f"{sign}{hours}:{minutes:02d}:{second:02d}"
    return f"{sign}{minutes}:{second:02d}"


def billed_as(speed: int) -> str:
    """Where a second is billed as several, in a sentence: ", each second billed as 1m"; else ""."""
    return f", each second billed as {exact_duration(speed)}" if speed > 1 else ""


def duration_text(seconds: int) -> str:
    """The form that is stored: 5400 → "1h30m". parse_duration reads it back exactly.

    Days are not used below two of them, so that a written "36h" stays "36h".
    """
    if DAY_SECONDS <= seconds < 2 * DAY_SECONDS:
        hours, rest = divmod(seconds, HOUR_SECONDS)
        return f"{hours}h" + (duration_text(rest) if rest else "")
    return exact_duration(seconds).replace(" ", "")
