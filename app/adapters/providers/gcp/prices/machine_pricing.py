"""A machine's price: the sum of its parts' unit prices in a region. Pure.

Not here: where unit prices come from (`sku_catalog`), or the price's past (`capacity_history`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction

from app.adapters.providers.gcp.prices.price_data import PriceData
from app.adapters.providers.gcp.prices.sku_catalog import UnitPrice
from app.domain.market.machine_catalog import MachineType
from app.domain.market.offer import Market


@dataclass(frozen=True)
class MachinePrice:
    """One machine-hour, in effect since `at`; `source` names who says so."""

    microusd_per_hour: int
    at: datetime
    source: str


class UnitPrices:
    """Unit prices by what they are for."""

    def __init__(self, prices: Iterable[UnitPrice]) -> None:
        self._by_place: dict[tuple[str, Market, str], UnitPrice] = {}
        for one in prices:
            for region in one.regions:
                key = (one.sku, one.market, region)
                held = self._by_place.get(key)
                if held is None or one.effective_at > held.effective_at:
                    self._by_place[key] = one

    def price(
        self, data: PriceData, kind: MachineType, region: str, market: Market
    ) -> MachinePrice | None:
        """The sum, rounded once; None when any part has no price there."""
        parts = data.parts(kind)
        if parts is None:
            return None
        total, since = Fraction(0), []
        for part in parts:
            unit = self._by_place.get((part.sku, market, region))
            if unit is None:
                return None
            total += unit.microusd_per_hour * Fraction(part.quantity)
            since.append(unit.effective_at)
        return MachinePrice(round(total), max(since), "gcp-billing-catalog")


def fallback_price(
    data: PriceData, kind: MachineType, region: str, market: Market
) -> MachinePrice | None:
    """The shipped price; its source carries its date."""
    usd = data.fallback_usd(kind, region, market)
    if usd is None:
        return None
    return MachinePrice(round(usd * 1_000_000), data.as_of, f"shipped-{data.as_of:%Y-%m-%d}")
