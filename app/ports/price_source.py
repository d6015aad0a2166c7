"""The price source port: offers now, and price history for the ledger."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from app.domain.market.offer import Offer, Pool


@dataclass(frozen=True)
class PriceChange:
    """From `at` on, one machine-hour in the pool costs this; a step function over time."""

    pool: Pool
    at: datetime
    microusd_per_hour: int
    source: str

    def __post_init__(self) -> None:
        if self.microusd_per_hour < 0:
            raise ValueError(f"{self.pool.key}: {self.microusd_per_hour} is no price")


class PriceSource(Protocol):
    """Prices of one provider; raises ProviderError when it cannot be asked."""

    def offers(self) -> tuple[Offer, ...]:
        """Current offers of every pool, sorted by pool."""
        ...

    def changes_since(self, since: datetime) -> tuple[PriceChange, ...]:
        """Every change after `since`, with the one in effect at `since`, by pool and time."""
        ...
