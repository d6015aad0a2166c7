"""What clouds tell of a pool besides its price: its past, and how likely it gives machines.

Optional abilities of a price source. Shown to people; no choice and no bill rests on them. Not
here: prices of now and since lately (`price_source`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, runtime_checkable

from app.domain.market.offer import Pool
from app.domain.market.price_history import Step


@dataclass(frozen=True)
class PreemptionRate:
    """The share of spot machines that stopped because they were taken, over an interval."""

    from_at: datetime | None
    to_at: datetime | None
    rate: float


@dataclass(frozen=True)
class PoolPast:
    """One pool's recorded past; steps by time, each with the price from then on."""

    pool: Pool
    steps: tuple[Step, ...]
    source: str
    preemptions: tuple[PreemptionRate, ...] = ()


@runtime_checkable
class PoolPastSource(Protocol):
    """A price source that knows the past."""

    @property
    def past_changes(self) -> bool:
        """Whether a past that was told once is worth asking for again, a day later."""
        ...

    def past_of(self, pools: Sequence[Pool], since: datetime) -> tuple[PoolPast, ...]:
        """The past of these pools, from what held at `since` on; bounded. Raises ProviderError."""
        ...


@runtime_checkable
class PlacementScoreSource(Protocol):
    """A price source that scores pools: how likely a launch there succeeds, 1 to 10."""

    def scores_of(self, pools: Sequence[Pool]) -> Mapping[Pool, int]:
        """Scores of pools whose machines carry the same GPU. Raises ProviderError."""
        ...
