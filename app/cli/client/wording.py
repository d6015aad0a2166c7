"""How values are worded for people: money, shares, times, sizes, places.

Pure: the present is an argument. Not here: tables and colour (`terminal`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

from app.cli.client.failures import CommandFailed
from app.domain.units.durations import format_duration, parse_duration
from app.domain.units.errors import InvalidValue
from app.domain.units.instants import day_and_time, format_instant
from app.domain.units.money import format_usd, short_usd
from app.domain.units.percent import against as difference
from app.domain.units.percent import part_percent, saved_percent
from app.domain.units.percent import percent as whole_percent
from app.domain.units.size_text import size_text

T = TypeVar("T")
NOTHING: Final = "-"


def money(microusd: int | None) -> str:
    """ "$1,800.00"; three decimals below a dollar; "<$0.001" below those; "-" for None."""
    return NOTHING if microusd is None else short_usd(microusd)


def exact_money(microusd: int) -> str:
    """All six decimals: "$0.000000"."""
    return format_usd(microusd, 6)


def hourly(microusd_per_hour: int | None) -> str:
    """ "0.918" dollars an hour; "-" for None and 0."""
    return NOTHING if not microusd_per_hour else f"{microusd_per_hour / 1_000_000:,.3f}"


def percent(share: float | None) -> str:
    """0.7 as "70 %"; "-" for None."""
    return NOTHING if share is None else whole_percent(share)


def saved(ratio: float | None) -> str:
    """How much less than on-demand, as the pages round it: 0.746 as "74 %"; "-" for None."""
    return NOTHING if ratio is None else saved_percent(ratio)


def part(microusd: int, total_microusd: int) -> str:
    """A part of a sum that is not zero, with its share: "$0.069 (4 %)", "<$0.001 (<1 %)"."""
    return f"{money(microusd)} ({part_percent(microusd / total_microusd)})"


def against_on_demand(microusd: int, on_demand_microusd: int) -> str:
    """A price against on-demand: "-70 %"."""
    return against(microusd / on_demand_microusd if on_demand_microusd > 0 else None)


def against(ratio: float | None) -> str:
    """A share of on-demand's price as the difference to it: 0.3 as "-70 %"; "-" for None."""
    return NOTHING if ratio is None else difference(ratio)


def size(size_bytes: int) -> str:
    """ "3.4 MiB"."""
    return size_text(size_bytes)


def instant(text: str | None) -> datetime | None:
    """The aware instant of the api's ISO 8601 text."""
    return None if text is None else datetime.fromisoformat(text)


def since(text: str, now: datetime) -> datetime:
    """The instant of "36h" before now, or of an ISO 8601 text.

    Raises CommandFailed for neither, and for one that lies ahead: nothing is there to be found.
    """
    try:
        return now - timedelta(seconds=parse_duration(text))
    except InvalidValue:
        pass
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise CommandFailed(
            f"--since {text[:40]!r}: write how long ago (90s, 15m, 36h, 2d) or a time like "
            "2026-03-01T12:00Z"
        ) from error
    at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    if at > now:
        raise CommandFailed(
            f"--since {text[:40]!r} lies in the future: it is {format_instant(now)} now; "
            "give an earlier time"
        )
    return at


def clock_time(text: str | None) -> str:
    """ "2026-03-01 12:00:05" in UTC; "-" for None."""
    at = instant(text)
    return NOTHING if at is None else day_and_time(at)


def ago(text: str | None, now: datetime) -> str:
    """ "5m 3s ago"; "-" for None."""
    at = instant(text)
    return NOTHING if at is None else f"{format_duration(max(0.0, (now - at).total_seconds()))} ago"


def ahead(text: str | None, now: datetime) -> str:
    """ "in 3h 20m", "12m ago"; "-" for None."""
    at = instant(text)
    if at is None:
        return NOTHING
    left = (at - now).total_seconds()
    return f"in {format_duration(left)}" if left >= 0 else f"{format_duration(-left)} ago"


def bar(share: float | None, cells: int) -> str:
    """A bar of so many characters, filled by the share."""
    filled = round(max(0.0, min(1.0, share or 0.0)) * cells)
    return "█" * filled + "░" * (cells - filled)


def pool(key: str | None) -> str:
    """A pool's key for people: "aws us-west-2a p3.2xlarge spot"; "-" for None."""
    if key is None:
        return NOTHING
    parts = key.split("/")
    if len(parts) != 5:
        return key
    provider, _region, zone, instance_type, market = parts
    return f"{provider} {zone} {instance_type} {market.replace('_', '-')}"


def place(key: str) -> str:
    """Where a pool is: "aws us-west-2a spot"."""
    parts = key.split("/")
    return f"{parts[0]} {parts[2]} {parts[4].replace('_', '-')}" if len(parts) == 5 else key


def cloud_id(instance: Mapping[str, Any]) -> str:
    """What the cloud's own tools call a machine; Google's ids hold the zone, too."""
    return str(instance["provider_instance_id"] or NOTHING).rpartition("/")[2]


def short_id(text: Any) -> str:
    """The end of an id: ids begin with the time, so the end tells them apart."""
    return NOTHING if text is None else str(text)[-8:]


def standing(state: str) -> str:
    """What a sentence says of a job in a state: `is running`, `has failed`."""
    return {"succeeded": "has succeeded", "failed": "has failed"}.get(state, f"is {state}")


def attempt(row: Mapping[str, Any]) -> int | None:
    """Which one of its job's attempts a row is of, from 1; None where the server does not know.

    A server of a release before has no such count, and its fence is what people read.
    """
    found: int | None = row.get("ordinal", row["fence"])
    return found


def attempt_cell(row: Mapping[str, Any]) -> str:
    """The same in a table."""
    found = attempt(row)
    return NOTHING if found is None else str(found)


def plural(count: int, noun: str) -> str:
    """ "1 machine", "2 machines"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def spread(rows: Sequence[T], count: int) -> list[T]:
    """At most `count` of the rows, evenly, always with the first and the last."""
    if len(rows) <= count:
        return list(rows)
    last = len(rows) - 1
    return [rows[round(index * last / (count - 1))] for index in range(count)]
