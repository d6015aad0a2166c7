"""How values read on the pages: money, durations, instants, words.

Lives here: pure functions that templates use as filters. Not here: what is shown (`job_page`) or
where (`templates/`). Durations and money in words are the domain's own.
"""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction
from math import isfinite

from app.domain.units.durations import format_duration
from app.domain.units.instants import format_instant, time_of_day
from app.domain.units.money import format_usd, short_usd
from app.domain.units.numbers import number_text
from app.domain.units.percent import against as difference
from app.domain.units.percent import change as signed_percent
from app.domain.units.percent import percent_fine, saved_percent
from app.domain.units.size_text import size_text
from app.domain.wording.stored_words import stored_words

DASH = "–"


def usd(microusd: int | None) -> str:
    """As `short_usd` writes it; None is a dash."""
    return DASH if microusd is None else short_usd(microusd)


def usd_exact(microusd: int | None) -> str:
    """To the micro-dollar, as the ledger has it."""
    return DASH if microusd is None else format_usd(microusd, 6)


def per_hour(microusd: int | None) -> str:
    """A price: always three decimals, so that columns align."""
    return DASH if microusd is None else f"{format_usd(microusd, 3)}/h"


def saved(ratio: float | Fraction | None) -> str:
    """How much less than on-demand, as the command line rounds it; None is a dash."""
    return DASH if ratio is None else saved_percent(ratio)


def part_percent(percents: float) -> str:
    """The share of a part that is not zero: 8.31 → "8.3 %", 0.01 → "<0.1 %"."""
    return "<0.1 %" if 0 < percents < 0.05 else percent_fine(percents / 100)


def against(ratio: float | None) -> str:
    """A share of on-demand's price as the difference to it: 0.3 → "-70 %"."""
    return DASH if ratio is None else difference(ratio)


def change(by: float | None) -> str:
    """A difference with its sign: 0.12 → "+12 %", -0.17 → "-17 %"."""
    return DASH if by is None else signed_percent(by)


def brief(seconds: float | None) -> str:
    """A duration in its two largest units: 42 → "42s", 5400 → "1h 30m", -90 → "-1m 30s"."""
    return DASH if seconds is None else format_duration(seconds)


def ago(instant: datetime | None, now: datetime) -> str:
    """How long since, or until: "42s ago", "in 3m"."""
    if instant is None:
        return DASH
    seconds = (now - instant).total_seconds()
    if abs(seconds) < 1:
        return "now"
    return f"{brief(seconds)} ago" if seconds > 0 else f"in {brief(-seconds)}"


def since(instant: datetime | None, now: datetime) -> str:
    """How long since something that has happened: "42s ago".

    Rows may be read later than the page's `now`; what they tell has not happened "in 2s".
    """
    return DASH if instant is None else ago(min(instant, now), now)


def clock_time(instant: datetime | None) -> str:
    """Time of day in UTC, with seconds."""
    return DASH if instant is None else time_of_day(instant)


def full_time(instant: datetime | None) -> str:
    """Date and time in UTC, for people."""
    return DASH if instant is None else format_instant(instant)


def machine_time(instant: datetime) -> str:
    """The `datetime` attribute of a <time>."""
    return instant.astimezone(UTC).isoformat(timespec="milliseconds")


def words(name: object) -> str:
    """A stored word as people read it: "gang_wait" → "gang wait"."""
    return stored_words(str(name))


def count(value: float | None) -> str:
    """As `number_text` writes it; None and what is not finite are a dash."""
    return DASH if value is None or not isfinite(value) else number_text(value)


def size(size_bytes: int | None) -> str:
    """3,600,000 → "3.4 MiB"."""
    return DASH if size_bytes is None else size_text(size_bytes)
