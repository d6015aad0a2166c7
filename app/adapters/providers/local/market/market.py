"""The recorded markets on the wall clock: prices and availability of every pool.

`market time = offset + (wall - epoch) x market_speed`, and a recording that ends starts over. All
instants here are integer microseconds since 1970, UTC. Not here: what runs (`local_cloud`) or what
running costs (`cloud_bill`).
"""

from __future__ import annotations

import functools
import math
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from app.adapters.providers.local.files.cloud_settings import REPLAY, CloudTerms, LocalSettings
from app.adapters.providers.local.market.recordings import (
    MISSING_PRICE_RATIO,
    PROVIDER,
    RECORDINGS,
    TRACES_FOLDER,
    Recording,
    region_of,
)
from app.adapters.providers.local.market.trace_file import SpotHistory, read_trace
from app.domain.market.offer import Hardware, Market, Pool

_US_PER_SECOND = 1_000_000


@dataclass(frozen=True)
class PoolMarket:
    """One pool over its recording. `changes`: (microseconds into the recording, uUSD per hour).

    available: machines per tick; empty for on-demand, which is never short.
    """

    pool: Pool
    cloud: str
    hardware: Hardware
    source: str
    on_demand_microusd: int
    changes: tuple[tuple[int, int], ...]
    tick_us: int
    length_us: int
    available: bytes
    gang: int


@dataclass(frozen=True)
class PriceStep:
    """From `at_us` on, an hour costs this."""

    at_us: int
    microusd_per_hour: int


class RecordedMarkets:
    """Every pool of the local cloud, under the folder's terms."""

    def __init__(self, terms: CloudTerms, settings: LocalSettings) -> None:
        self._terms = terms
        self._settings = settings
        self._pools = {market.pool: market for market in recorded_pools()}

    def pools(self) -> tuple[PoolMarket, ...]:
        """All pools, sorted."""
        return tuple(self._pools[pool] for pool in sorted(self._pools))

    def pool(self, pool: Pool) -> PoolMarket | None:
        """The market of a pool; None when it is not offered."""
        return self._pools.get(pool)

    def price_at(self, pool: Pool, at_us: int) -> int:
        """uUSD per hour in effect. Raises KeyError for a pool that is not offered."""
        return next(self.price_points(pool, at_us, at_us)).microusd_per_hour

    def price_points(self, pool: Pool, from_us: int, to_us: int) -> Iterator[PriceStep]:
        """The point in effect at `from_us`, then every change in `(from_us, to_us]`.

        Before the epoch there is no market: such instants are taken as the epoch. Where a
        recording starts over its first price is a point too, changed or not.
        """
        market = self._pools[pool]
        from_us, to_us = max(from_us, self._terms.epoch_us), max(to_us, self._terms.epoch_us)
        lap, within = divmod(self._position_us(from_us), market.length_us)
        place = bisect_right(market.changes, within, key=lambda change: change[0]) - 1
        while True:
            starts_us, price = market.changes[place]
            at_us = self._wall_us(lap * market.length_us + starts_us)
            if at_us > to_us:
                return
            yield PriceStep(max(at_us, self._terms.epoch_us), price)
            place += 1
            if place == len(market.changes):
                if len(market.changes) == 1:
                    return
                lap, place = lap + 1, 0

    def offered(self, pool: Pool, at_us: int) -> int | None:
        """Machines the pool can hold in all; None: it is never short."""
        market = self._pools[pool]
        if not market.available:
            return None
        if self._settings.mode != REPLAY:
            return self._settings.local_slots
        within = self._position_us(at_us) % market.length_us
        return self._machines(market, market.available[within // market.tick_us])

    def next_below(self, pool: Pool, count: int, after_us: int) -> int | None:
        """The first instant after `after_us` at which the pool holds fewer than `count`.

        None when that never comes within one length of the recording, or out of replay.
        """
        market = self._pools[pool]
        if self._settings.mode != REPLAY or not market.available:
            return None
        tick = self._position_us(after_us) // market.tick_us
        ticks = len(market.available)
        for ahead in range(1, ticks + 1):
            there = market.available[(tick + ahead) % ticks]
            if self._machines(market, there) < count:
                return self._wall_us((tick + ahead) * market.tick_us)
        return None

    def _machines(self, market: PoolMarket, recorded: int) -> int:
        return recorded * self._settings.local_slots if market.gang == 1 else recorded

    def _position_us(self, wall_us: int) -> int:
        passed = max(0, wall_us - self._terms.epoch_us) * self._terms.market_speed
        return self._terms.market_offset_seconds * _US_PER_SECOND + math.floor(passed)

    def _wall_us(self, position_us: int) -> int:
        """The first wall microsecond whose market position is `position_us` or later."""
        ahead = position_us - self._terms.market_offset_seconds * _US_PER_SECOND
        return self._terms.epoch_us + math.ceil(Fraction(ahead) / self._terms.market_speed)


@functools.cache
def recorded_pools() -> tuple[PoolMarket, ...]:
    """Every pool of the recordings; one that two of them hold is taken from the first."""
    found: dict[Pool, PoolMarket] = {}
    for recording in RECORDINGS:
        trace = read_trace(TRACES_FOLDER / f"{recording.name}.npz")
        for row in range(len(trace.zones)):
            spot = _spot_market(recording, trace, row)
            if spot.pool not in found:
                on_demand = _on_demand_twin(spot)
                found |= {spot.pool: spot, on_demand.pool: on_demand}
    return tuple(found.values())


def _spot_market(recording: Recording, trace: SpotHistory, row: int) -> PoolMarket:
    zone = trace.zones[row].partition("_")[0]
    on_demand = _microusd(trace.on_demand[row], recording.price_divisor)
    tick_us = trace.gap_seconds * _US_PER_SECOND
    changes: list[tuple[int, int]] = []
    for tick, dollars in enumerate(trace.prices[row]):
        if math.isnan(dollars):
            price = round(on_demand * MISSING_PRICE_RATIO)
        else:
            price = _microusd(dollars, recording.price_divisor)
        if not changes or changes[-1][1] != price:
            changes.append((tick * tick_us, price))
    place = (PROVIDER, region_of(zone, recording.cloud), zone, recording.instance_type)
    return PoolMarket(
        pool=Pool(*place, Market.SPOT),
        cloud=recording.cloud,
        hardware=recording.hardware,
        source=f"recording {recording.name}",
        on_demand_microusd=on_demand,
        changes=tuple(changes),
        tick_us=tick_us,
        length_us=len(trace.available[row]) * tick_us,
        available=trace.available[row],
        gang=trace.gang,
    )


def _on_demand_twin(spot: PoolMarket) -> PoolMarket:
    place = (PROVIDER, spot.pool.region, spot.pool.zone, spot.pool.instance_type)
    return PoolMarket(
        pool=Pool(*place, Market.ON_DEMAND),
        cloud=spot.cloud,
        hardware=spot.hardware,
        source=spot.source,
        on_demand_microusd=spot.on_demand_microusd,
        changes=((0, spot.on_demand_microusd),),
        tick_us=spot.tick_us,
        length_us=spot.length_us,
        available=b"",
        gang=spot.gang,
    )


def _microusd(dollars: float, divisor: int) -> int:
    return round(dollars * 1_000_000 / divisor)
