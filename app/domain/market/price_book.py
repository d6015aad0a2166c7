"""The price history of one pool: a step function of time.

Lives here: which price was in effect when, and where it came from. Not here: which pool an
instance belongs to, and what its time costs (`billing`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime


class UnknownPrice(LookupError):
    """A price was asked for an instant that no recorded price covers."""


@dataclass(frozen=True, slots=True)
class PricePoint:
    """From `at` on, one instance-hour costs `microusd_per_hour`, until the next point."""

    at: datetime
    microusd_per_hour: int
    source: str
    captured_at: datetime

    def __post_init__(self) -> None:
        for name in ("at", "captured_at"):
            if getattr(self, name).tzinfo is None:
                raise ValueError(f"price point: {name} has no time zone; pass an aware UTC time")
        if self.microusd_per_hour < 0:
            raise ValueError(f"price point at {self.at}: {self.microusd_per_hour} is negative")


@dataclass(frozen=True, slots=True)
class PriceSegment:
    """One constant price over `[from_at, to_at)`."""

    from_at: datetime
    to_at: datetime
    microusd_per_hour: int
    source: str
    captured_at: datetime


@dataclass(frozen=True, slots=True)
class PriceBook:
    """Price points of one pool, in order of time, one per instant.

    Build it with `PriceBook.of`. Of two points for the same instant the one captured later
    counts: a provider's correction replaces what it said before.
    """

    points: tuple[PricePoint, ...]

    @classmethod
    def of(cls, points: Iterable[PricePoint]) -> PriceBook:
        """A book from points in any order."""
        latest: dict[datetime, PricePoint] = {}
        for point in points:
            known = latest.get(point.at)
            if known is None or point.captured_at >= known.captured_at:
                latest[point.at] = point
        return cls(tuple(sorted(latest.values(), key=lambda point: point.at)))

    def segments(self, from_at: datetime, to_at: datetime) -> tuple[PriceSegment, ...]:
        """Constant pieces that cover `[from_at, to_at)` without a gap.

        An empty span (`from_at == to_at`) gives one segment of no length, so that a machine that
        ended at the instant it started still has a price for its minimum charge. The last known
        price holds on. Raises ValueError for a reversed span, and UnknownPrice before the first
        point: a price is never guessed backwards, because a guess would be booked as if the
        provider had said it.
        """
        if to_at < from_at:
            raise ValueError(f"price segments: the span {from_at} to {to_at} is reversed")
        first = self._place(from_at)
        segments: list[PriceSegment] = []
        for place in range(first, len(self.points)):
            point = self.points[place]
            if place > first and point.at >= to_at:
                break
            following = self.points[place + 1].at if place + 1 < len(self.points) else to_at
            segments.append(
                PriceSegment(
                    max(from_at, point.at),
                    min(to_at, following),
                    point.microusd_per_hour,
                    point.source,
                    point.captured_at,
                )
            )
        return tuple(segments)

    def _place(self, instant: datetime) -> int:
        place = bisect_right(self.points, instant, key=lambda point: point.at) - 1
        if place < 0:
            known_from = (
                f"prices are known from {self.points[0].at.astimezone(UTC).isoformat()} on"
                if self.points
                else "no price is recorded for this pool"
            )
            raise UnknownPrice(f"no price at {instant.isoformat()}: {known_from}")
        return place
