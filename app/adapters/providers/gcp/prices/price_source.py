"""The price source of Google Cloud: what every zone offers now, and what it cost before.

Unit prices come from the billing catalogue, past spot prices from the advice API, and both from
the shipped data where they cannot be had; each price says which. Google's prices are the same in
all zones of a region, and spot prices change at most once a day, so they are asked for by the hour.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from app.adapters.providers.gcp.client.attachment_prices import attachments_in
from app.adapters.providers.gcp.client.compute_api import ComputeApi
from app.adapters.providers.gcp.client.gcp_settings import PROVIDER
from app.adapters.providers.gcp.machines.machine_fittings import as_wired, boot_disk_type
from app.adapters.providers.gcp.prices.capacity_history import SOURCE, CapacityHistory, read_history
from app.adapters.providers.gcp.prices.machine_pricing import (
    MachinePrice,
    UnitPrices,
    fallback_price,
)
from app.adapters.providers.gcp.prices.price_data import price_data
from app.adapters.providers.gcp.prices.sku_catalog import read_unit_prices
from app.adapters.providers.gcp.zones.zone_lists import ZoneLists
from app.adapters.providers.gcp.zones.zone_types import read_zones_by_type
from app.adapters.providers.machine_images import booted_hardware
from app.domain.market.machine_catalog import MachineCatalog, MachineType
from app.domain.market.offer import Market, Offer, Pool
from app.ports.cloud_provider import ProviderError
from app.ports.pool_past import PoolPast
from app.ports.price_source import PriceChange

CLOUD: Final = "gce"
"""Whose billing rules hold for the machines."""

_HISTORY_AGE: Final = timedelta(days=1)
_HISTORIES_AT_A_TIME: Final = 10
_POINTS_MAX: Final = 400

Key = tuple[str, str]
"""(machine type, region)."""


def _now() -> datetime:
    return datetime.now(UTC)


class GcpPriceSource:
    """Implements `app.ports.price_source.PriceSource`; safe to share between threads."""

    def __init__(
        self, api: ComputeApi, catalog: MachineCatalog, now: Callable[[], datetime] = _now
    ) -> None:
        self._api = api
        self._lists = ZoneLists(api)
        self._catalog = catalog
        self._now = now
        self._data = price_data()
        self._every = timedelta(seconds=api.settings.price_refresh_seconds)
        self._lock = threading.RLock()
        self._read_at: datetime | None = None
        self._units: UnitPrices | None = None
        self._problem: ProviderError | None = None
        self._zones: dict[str, tuple[str, ...]] = {}
        self._histories: dict[Key, tuple[datetime, CapacityHistory]] = {}
        self._points: dict[tuple[Key, Market], list[MachinePrice]] = {}

    @property
    def problem(self) -> ProviderError | None:
        """Why the last reading of the catalogue failed; None while it works."""
        return self._problem

    def offers(self) -> tuple[Offer, ...]:
        """Every pool of the configured zones whose price is known, sorted by pool.

        Raises ProviderError when Google does not say which types its zones have.
        """
        with self._lock:
            self._refresh()
            read_at = self._read_at or self._now()
            found = [
                offer
                for kind in self._catalog.types
                for zone in self._zones.get(kind.name, ())
                for offer in self._offers_of(kind, zone, read_at)
            ]
        return tuple(sorted(found, key=lambda offer: offer.pool))

    def changes_since(self, since: datetime) -> tuple[PriceChange, ...]:
        """Every known change after `since` and the price in effect then, by pool and time."""
        with self._lock:
            self._refresh()
            found = [
                PriceChange(pool, point.at, point.microusd_per_hour, point.source)
                for pool in self._pools()
                for point in _from(self._points.get((_key(pool), pool.market), ()), since)
            ]
        return tuple(sorted(found, key=lambda change: (change.pool, change.at)))

    def price_of(self, pool: Pool) -> int | None:
        """A pool's price as last read; None before that, or where none is known."""
        with self._lock:
            points = self._points.get((_key(pool), pool.market))
            return points[-1].microusd_per_hour if points else None

    @property
    def past_changes(self) -> bool:
        """Preemption rates are news every day."""
        return True

    def past_of(self, pools: Sequence[Pool], since: datetime) -> tuple[PoolPast, ...]:
        """What the advice tells, asked once for each type and region.

        Raises ProviderError when it tells nothing of any of them.
        """
        found: list[PoolPast] = []
        refused: ProviderError | None = None
        for key in sorted({_key(pool) for pool in pools}):
            try:
                history = self._fresh_history(*key)
            except ProviderError as error:
                history, refused = None, error
            if history is None:
                continue
            steps = _from(history.prices, since)
            found += [
                PoolPast(
                    pool,
                    tuple((one.at, one.microusd_per_hour) for one in steps),
                    SOURCE,
                    history.preemptions,
                )
                for pool in pools
                if _key(pool) == key and pool.market is Market.SPOT
            ]
        if not found and refused is not None:
            raise refused
        return tuple(found)

    def _fresh_history(self, instance_type: str, region: str) -> CapacityHistory | None:
        """As held for less than a day, else asked for; None for a type that is not known."""
        kind, now = self._catalog.get(instance_type), self._now()
        if kind is None:
            return None
        with self._lock:
            held = self._histories.get((instance_type, region))
        if held is not None and now - held[0] < _HISTORY_AGE:
            return held[1]
        history = read_history(self._api, kind, region)
        with self._lock:
            self._histories[instance_type, region] = (now, history)
        return history

    def _offers_of(self, kind: MachineType, zone: str, read_at: datetime) -> Iterable[Offer]:
        spot, on_demand = (
            Pool(PROVIDER, zone.rpartition("-")[0], zone, kind.name, market)
            for market in (Market.SPOT, Market.ON_DEMAND)
        )
        full, settings = self._latest(on_demand), self._api.settings
        if full is None:
            return
        for pool in (spot, on_demand) if kind.spot else (on_demand,):
            price = self._latest(pool)
            if price is not None:
                yield Offer(
                    pool=pool,
                    hardware=booted_hardware(
                        PROVIDER, as_wired(settings, kind), settings.image_for(kind.gpu)
                    ),
                    price_microusd_per_hour=price.microusd_per_hour,
                    on_demand_microusd_per_hour=full.microusd_per_hour,
                    cloud=CLOUD,
                    quoted_at=read_at,
                    price_source=price.source,
                    attachments=attachments_in(
                        pool.region,
                        pool.market,
                        boot_disk_type(settings, kind),
                        settings.disk_gb,
                        external_ip=settings.external_ip,
                    ),
                )

    def _latest(self, pool: Pool) -> MachinePrice | None:
        points = self._points.get((_key(pool), pool.market))
        return points[-1] if points else None

    def _pools(self) -> Iterable[Pool]:
        for name, zones in self._zones.items():
            for zone in zones:
                for market in Market:
                    yield Pool(PROVIDER, zone.rpartition("-")[0], zone, name, market)

    def _refresh(self) -> None:
        now = self._now()
        if self._read_at is not None and now - self._read_at < self._every:
            return
        deadline, settings = self._api.deadline(), self._api.settings
        self._zones = read_zones_by_type(
            self._lists, deadline, settings, self._catalog, self._zones
        )
        try:
            self._units = UnitPrices(read_unit_prices(self._api, self._data, now))
            self._problem = None
        except ProviderError as error:
            self._problem = error
        places = [
            (kind, region)
            for kind in self._catalog.types
            for region in sorted(
                {zone.rpartition("-")[0] for zone in self._zones.get(kind.name, ())}
            )
        ]
        self._read_histories(places, now)
        for kind, region in places:
            for market in Market:
                self._add_points(kind, region, market, now)
        self._read_at = now

    def _read_histories(self, places: list[tuple[MachineType, str]], now: datetime) -> None:
        """The oldest few: the advice is asked for one type and region at a time."""
        due = [
            (kind, region)
            for kind, region in places
            if kind.spot and self._history_age(kind, region, now) >= _HISTORY_AGE
        ]
        refused: set[str] = set()
        for kind, region in due[:_HISTORIES_AT_A_TIME]:
            if region in refused:
                continue
            try:
                history = read_history(self._api, kind, region)
            except ProviderError:
                # Prices of now do without; the region is asked again with the next ones.
                refused.add(region)
                continue
            self._histories[kind.name, region] = (now, history)

    def _history_age(self, kind: MachineType, region: str, now: datetime) -> timedelta:
        held = self._histories.get((kind.name, region))
        return _HISTORY_AGE if held is None else now - held[0]

    def _add_points(self, kind: MachineType, region: str, market: Market, now: datetime) -> None:
        key: Key = (kind.name, region)
        points = self._points.setdefault((key, market), [])
        if market is Market.SPOT and key in self._histories:
            _merge(points, self._histories[key][1].prices)
        price = None if self._units is None else self._units.price(self._data, kind, region, market)
        if price is None and not points:
            price = fallback_price(self._data, kind, region, market)
        if price is None:
            return
        if points and price.at <= points[-1].at:
            # Known since before what we have: only a different price is news, and from now on.
            if price.microusd_per_hour == points[-1].microusd_per_hour:
                return
            price = MachinePrice(price.microusd_per_hour, now, price.source)
        _merge(points, (price,))


def _key(pool: Pool) -> Key:
    return pool.instance_type, pool.region


def _merge(points: list[MachinePrice], more: Iterable[MachinePrice]) -> None:
    """Add what is new, by time; a step to the same price is none."""
    held = {point.at: point for point in points}
    for point in more:
        held.setdefault(point.at, point)
    points.clear()
    for at in sorted(held):
        if not points or points[-1].microusd_per_hour != held[at].microusd_per_hour:
            points.append(held[at])
    del points[:-_POINTS_MAX]


def _from(points: Iterable[MachinePrice], since: datetime) -> list[MachinePrice]:
    """Those after `since`, and the one in effect then."""
    ordered = list(points)
    begun = [index for index, point in enumerate(ordered) if point.at <= since]
    return ordered[begun[-1] if begun else 0 :]
