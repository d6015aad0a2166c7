"""Which pools are worth waiting for: with time to spare, the cheaper ones alone.

A simulated rider per level of price boards only the pools up to that level. What the riders paid
in the last days, how long they waited, and how often they had to board, tells which level does
the work that is left at the least price and well in time. Here: the riders, and that choice. Not
here: hazards (`hazard_belief`), or whether a pool that is worth it is taken (`placement_choice`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from app.domain.availability.pool_hazards import FORGETTING_HOURS

TIME_RESERVE: Final = 1.1
"""A level must leave so much more time than the work takes there, and HOURS_KEPT besides."""

HOURS_KEPT: Final = 1.0

GAIN_MIN: Final = 0.005
"""Dearer pools are passed over only for a price lower by this share."""

WATCHED_HOURS_MIN: Final = 3.0
THRESHOLDS_MAX: Final = 8


class PriceThresholds:
    """Riders of all levels, the widest first."""

    def __init__(self, pools: int) -> None:
        levels = min(pools, THRESHOLDS_MAX)
        counts = sorted({math.ceil(pools * level / levels) for level in range(1, levels + 1)})
        self._riders = [_Rider(count) for count in reversed(counts)]

    def watch(self, up: Sequence[bool], prices: Sequence[float], hours: float) -> None:
        """One tick on, with the pools that are up, or are believed to be; prices in $/h."""
        order = _cheapest_first(prices)
        for rider in self._riders:
            rider.ride(up, prices, _within(order, prices, rider.count), hours)

    def worth_waiting_for(
        self, prices: Sequence[float], work_hours: float, time_hours: float, restart_hours: float
    ) -> Sequence[int]:
        """Pools, the cheapest first; all of them where fewer would be too late, or no cheaper."""
        chosen = self._riders[0]
        if chosen.watched_hours >= WATCHED_HOURS_MIN:
            least = chosen.usd_per_hour(restart_hours) * (1 - GAIN_MIN)
            for rider in self._riders[1:]:
                price = rider.usd_per_hour(restart_hours)
                needed = rider.time_per_hour(restart_hours) * (
                    TIME_RESERVE * work_hours + HOURS_KEPT
                )
                if price < least and needed <= time_hours:
                    chosen, least = rider, price
        return _within(_cheapest_first(prices), prices, chosen.count)


class _Rider:
    """Boards the `count` cheapest pools; what it has been through fades as evidence does."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.watched_hours = 0.0
        self._ridden_hours = self._boardings = self._paid_usd = 0.0
        self._pool = -1

    def ride(
        self, up: Sequence[bool], prices: Sequence[float], allowed: Sequence[int], hours: float
    ) -> None:
        """One tick: stay while the pool is up, else board the cheapest that is."""
        keep = math.exp(-hours / FORGETTING_HOURS)
        self.watched_hours = self.watched_hours * keep + hours
        self._ridden_hours *= keep
        self._boardings *= keep
        self._paid_usd *= keep
        if self._pool < 0 or not up[self._pool]:
            self._pool = next((pool for pool in allowed if up[pool]), -1)
            self._boardings += self._pool >= 0
        if self._pool >= 0:
            self._ridden_hours += hours
            self._paid_usd += prices[self._pool] * hours

    def usd_per_hour(self, restart_hours: float) -> float:
        """Paid per hour of work; inf where none was done."""
        worked = self._worked_hours(restart_hours)
        return self._paid_usd / worked if worked > 0 else math.inf

    def time_per_hour(self, restart_hours: float) -> float:
        """Hours that pass per hour of work, waiting and restarts included."""
        worked = self._worked_hours(restart_hours)
        return self.watched_hours / worked if worked > 0 else math.inf

    def _worked_hours(self, restart_hours: float) -> float:
        return self._ridden_hours - self._boardings * restart_hours


def _cheapest_first(prices: Sequence[float]) -> list[int]:
    return sorted(range(len(prices)), key=lambda pool: (prices[pool], pool))


def _within(order: Sequence[int], prices: Sequence[float], count: int) -> Sequence[int]:
    """The `count` cheapest, and those that cost as much as the last of them."""
    dearest = prices[order[count - 1]]
    return [pool for pool in order if prices[pool] <= dearest]
