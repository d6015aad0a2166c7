"""What pools there are in a simulated world, what they cost over time, and when they run dry.

Everything is drawn from the seed before the first event. Not here: the machines in them
(`simulated_cloud`), or who asks (`refresh_prices`).
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace

from app.domain.market.attachments import Attachments
from app.domain.market.offer import Hardware, Market, Offer, Pool
from app.simulation.engine.seeded_entropy import Dice, SeededEntropy
from app.simulation.engine.virtual_clock import VirtualClock, instant, microseconds

Places = tuple[tuple[str, str, tuple[tuple[str, str], ...]], ...]
"""(provider, whose rules, ((region, zone), …)) for each provider."""

_HOUR_US = 3_600_000_000
_BEFORE_US = 6 * _HOUR_US
_HARDWARE = Hardware(gpu_name="V100", gpu_count=1, gpu_memory_gb=16, vcpus=8, memory_gb=61)
_ON_DEMAND_MICROUSD_PER_HOUR = 3_060_000
DISK_GB, DISK_MICROUSD_PER_GB_MONTH, ADDRESS_MICROUSD_PER_HOUR = 100, 100_000, 2_500
WITH_ATTACHMENTS = frozenset({"gce"})
"""Clouds whose machines come with a disk and an address at a price; the others have them free."""


@dataclass(frozen=True)
class MarketSettings:
    """How the simulated market behaves; all times in hours.

    spot_capacity: machines a spot pool holds when it is not dry. price_step: mean time between
    price changes. drought_every, drought_lasts: mean times; 0 for none.
    """

    spot_capacity: int = 6
    price_step_hours: float = 0.75
    drought_every_hours: float = 10.0
    drought_lasts_hours: float = 0.7


@dataclass(frozen=True)
class Drought:
    """From `from_us` to `to_us` the pool has nothing to give; what it has given stays."""

    from_us: int
    to_us: int


@dataclass(frozen=True)
class PoolPath:
    """One pool's past and future: step prices by time, and droughts."""

    pool: Pool
    cloud: str
    times_us: tuple[int, ...]
    prices: tuple[int, ...]
    droughts: tuple[Drought, ...]
    capacity: int

    def price_at(self, at_us: int) -> int:
        """Micro-dollars per hour at an instant."""
        return self.prices[bisect_right(self.times_us, at_us) - 1]

    def capacity_at(self, at_us: int) -> int:
        """Machines the pool can hold at an instant."""
        dry = any(drought.from_us <= at_us < drought.to_us for drought in self.droughts)
        return 0 if dry else self.capacity


class SimulatedMarket:
    """All pools of the world, by key."""

    def __init__(
        self,
        entropy: SeededEntropy,
        clock: VirtualClock,
        hours: float,
        settings: MarketSettings,
        places: Places | None = None,
    ) -> None:
        self._clock = clock
        self.paths: dict[Pool, PoolPath] = {}
        until_us = clock.starts_us + round(hours * _HOUR_US)
        for provider, cloud, zones in places or _PLACES:
            for region, zone in zones:
                spot = Pool(provider, region, zone, f"{cloud}-v100", Market.SPOT)
                dice = entropy.stream(f"market/{spot.key}")
                self.paths[spot] = _spot_path(
                    spot, cloud, dice, clock.starts_us, until_us, settings
                )
                steady = replace(spot, market=Market.ON_DEMAND)
                self.paths[steady] = PoolPath(
                    steady,
                    cloud,
                    (clock.starts_us - _BEFORE_US,),
                    (_ON_DEMAND_MICROUSD_PER_HOUR,),
                    (),
                    100,
                )

    def jump(self, pool: Pool, factor: float) -> None:
        """From now on the pool costs so many times as much, less than on-demand in any case."""
        path, now_us = self.paths[pool], self._clock.true_us
        past = bisect_right(path.times_us, now_us)
        times = (*path.times_us[:past], now_us, *path.times_us[past:])
        dearest = round(0.95 * _ON_DEMAND_MICROUSD_PER_HOUR)
        dearer = [min(dearest, round(price * factor)) for price in path.prices[past - 1 :]]
        prices = (*path.prices[:past], *dearer)
        self.paths[pool] = replace(path, times_us=times, prices=prices)

    def regions(self, provider: str) -> tuple[str, ...]:
        """Regions of a provider, sorted."""
        return tuple(sorted({pool.region for pool in self.paths if pool.provider == provider}))

    def offers(self, provider: str) -> tuple[Offer, ...]:
        """What the provider says its pools cost now; it does not tell what it has left."""
        at_us = self._clock.true_us
        return tuple(
            Offer(
                pool=pool,
                hardware=_HARDWARE,
                price_microusd_per_hour=path.price_at(at_us),
                on_demand_microusd_per_hour=_ON_DEMAND_MICROUSD_PER_HOUR,
                cloud=path.cloud,
                quoted_at=instant(at_us),
                price_source="simulated_market",
                attachments=_attachments(path),
            )
            for pool, path in sorted(self.paths.items())
            if pool.provider == provider
        )


_PLACES: Places = (
    ("aws", "ec2", (("us-east-1", "us-east-1a"), ("us-east-1", "us-east-1b"))),
    ("gcp", "gce", (("us-central1", "us-central1-a"),)),
)


def _attachments(path: PoolPath) -> Attachments | None:
    if path.cloud not in WITH_ATTACHMENTS:
        return None
    return Attachments(
        DISK_GB,
        DISK_MICROUSD_PER_GB_MONTH,
        ADDRESS_MICROUSD_PER_HOUR,
        "simulated_market",
        instant(path.times_us[0]),
    )


def _spot_path(
    pool: Pool, cloud: str, dice: Dice, starts_us: int, until_us: int, settings: MarketSettings
) -> PoolPath:
    at_us = starts_us - _BEFORE_US
    share = dice.uniform(0.25, 0.5)
    times, prices = [], []
    while at_us < until_us:
        times.append(at_us)
        prices.append(round(_ON_DEMAND_MICROUSD_PER_HOUR * share))
        share = min(0.85, max(0.15, share * dice.uniform(0.88, 1.14)))
        at_us += max(
            60_000_000, microseconds(dice.waiting_seconds(3600 * settings.price_step_hours))
        )
    return PoolPath(
        pool,
        cloud,
        tuple(times),
        tuple(prices),
        _droughts(dice, starts_us, until_us, settings),
        settings.spot_capacity,
    )


def _droughts(
    dice: Dice, starts_us: int, until_us: int, settings: MarketSettings
) -> tuple[Drought, ...]:
    if settings.drought_every_hours <= 0:
        return ()
    found: list[Drought] = []
    at_us = starts_us
    while True:
        at_us += microseconds(dice.waiting_seconds(3600 * settings.drought_every_hours))
        if at_us >= until_us:
            return tuple(found)
        lasts_us = microseconds(dice.waiting_seconds(3600 * settings.drought_lasts_hours))
        found.append(Drought(at_us, at_us + lasts_us))
        at_us += lasts_us
