"""The strip of prices below the timeline: spot and on-demand of the pools that were used.

Geometry alone, on the chart's own axis: places across are percentages of the width. Not here:
where the prices come from (`page_reports`), or the drawing (`templates/price_strip.html`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from app.domain.market.offer import Market, Pool
from app.storage.reports.page_read_models import PriceSample
from app.web import formats
from app.web.charts.lane_pieces import Axis

STRIP_HEIGHT: Final = 64
PLOT_TOP: Final = 20
PLOT_HEIGHT: Final = 36
POOLS_MAX: Final = 3
_WIDTH_MIN: Final = 0.3
UNIT: Final = "US dollars per hour of one machine"
_EDGE: Final = 60
"""So far up a curve may go, of 1000: a line on the very edge would be cut."""

Prices = Mapping[Pool, Sequence[PriceSample]]


@dataclass(frozen=True)
class Segment:
    """A time without a change, for those who point at it; `x` and `width` are percentages."""

    x: float
    width: float
    title: str


@dataclass(frozen=True)
class PriceCurve:
    """One pool's prices. `points`: a line in a square of 1000 x 1000, y downwards.

    kind: its class in the drawing. newest: the last price drawn, for the legend.
    """

    kind: str
    label: str
    newest: str
    points: str


@dataclass(frozen=True)
class PriceStrip:
    """All curves on one scale that begins at 0. `y` is where the strip begins, in pixels.

    unit: what the prices are in. when: of which moment the newest ones are, "now" or "at the end".
    """

    y: int
    unit: str
    when: str
    curves: tuple[PriceCurve, ...]
    segments: tuple[Segment, ...]
    summary: str

    @property
    def plot_y(self) -> int:
        """Where the curves begin."""
        return self.y + PLOT_TOP

    @property
    def floor_y(self) -> int:
        """Where nothing costs anything."""
        return self.plot_y + PLOT_HEIGHT


@dataclass(frozen=True)
class _Step:
    from_at: datetime
    to_at: datetime
    microusd_per_hour: int
    highest: int


def pools_to_price(used: Iterable[Pool]) -> tuple[Pool, ...]:
    """Spot and on-demand of the newest places used; `used` is in order of time."""
    places: dict[tuple[str, str], Pool] = {}
    for pool in used:
        places.pop((pool.zone, pool.instance_type), None)
        places[pool.zone, pool.instance_type] = pool
    newest = list(places.values())[-POOLS_MAX:]
    return tuple(replace(pool, market=market) for pool in newest for market in Market)


def price_strip(
    prices: Prices, axis: Axis, until: datetime, y: int, *, live: bool
) -> PriceStrip | None:
    """The strip, or None where no price is recorded.

    until: prices are drawn up to then. live: whether that is the present.
    """
    steps = {pool: _steps(points, axis, until) for pool, points in prices.items()}
    drawn = {pool: found for pool, found in steps.items() if found}
    if not drawn:
        return None
    highest = max(step.highest for found in drawn.values() for step in found)
    several = len({pool.zone for pool in drawn}) > 1
    # On-demand first, so that spot is drawn over it.
    order = sorted(drawn, key=lambda one: (one.market is Market.SPOT, one))
    labels = {
        pool: formats.words(pool.market) + (f" {pool.zone}" if several else "") for pool in order
    }
    curves = tuple(_curve(pool, labels[pool], drawn[pool], axis, max(1, highest)) for pool in order)
    when = "now" if live else "at the end"
    told = ", ".join(f"{curve.label} {curve.newest} {when}" for curve in curves)
    return PriceStrip(
        y,
        UNIT,
        when,
        curves,
        _segments([(labels[pool], drawn[pool]) for pool in reversed(order)], axis),
        f"Prices over time, in {UNIT}: {told}.",
    )


def _steps(points: Sequence[PriceSample], axis: Axis, until: datetime) -> list[_Step]:
    """Times of one price on the axis; changes too close to be seen share the later price."""
    end = min(until, axis.end_at)
    found: list[_Step] = []
    for point, after in zip(points, [*points[1:], None], strict=True):
        from_at = max(point.at, axis.start_at)
        to_at = end if after is None else min(after.at, end)
        if from_at >= to_at:
            continue
        price = point.microusd_per_hour
        if found and axis.x(to_at) - axis.x(found[-1].from_at) < _WIDTH_MIN:
            found[-1] = _Step(found[-1].from_at, to_at, price, max(found[-1].highest, price))
        else:
            found.append(_Step(from_at, to_at, price, price))
    return found


def _curve(pool: Pool, label: str, steps: Sequence[_Step], axis: Axis, highest: int) -> PriceCurve:
    line = []
    for step in steps:
        height = 1000 - (1000 - _EDGE) * step.microusd_per_hour / highest
        line += [f"{axis.x(at) * 10:.1f},{height:.0f}" for at in (step.from_at, step.to_at)]
    kind = "spot" if pool.market is Market.SPOT else "on-demand"
    newest = formats.per_hour(steps[-1].microusd_per_hour)
    return PriceCurve(kind, label, newest, " ".join(line))


def _segments(priced: Sequence[tuple[str, Sequence[_Step]]], axis: Axis) -> tuple[Segment, ...]:
    """What each price was between one change of any and the next."""
    changes = sorted({step.from_at for _, steps in priced for step in steps})
    end = max(steps[-1].to_at for _, steps in priced)
    kept: list[datetime] = []
    for at in changes:
        if not kept or axis.x(at) - axis.x(kept[-1]) >= _WIDTH_MIN:
            kept.append(at)
    segments = []
    for from_at, to_at in zip(kept, [*kept[1:], end], strict=True):
        told = [f"{formats.clock_time(from_at)} to {formats.clock_time(to_at)}"]
        for label, steps in priced:
            price = next((s.microusd_per_hour for s in reversed(steps) if s.from_at < to_at), None)
            if price is not None:
                told.append(f"{label} {formats.per_hour(price)}")
        left = axis.x(from_at)
        segments.append(Segment(round(left, 3), round(axis.x(to_at) - left, 3), " · ".join(told)))
    return tuple(segments)
