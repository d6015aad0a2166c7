"""The bids of an order by machine type: one call chooses among the zones of a type. Pure.

Not here: the calls (`launching`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from app.domain.market.offer import Pool
from app.ports.cloud_provider import LaunchOrder, PoolBid, PoolRefusal, RefusalKind


@dataclass(frozen=True)
class BidGroup:
    """The pools of one machine type, in the order of preference; at least one."""

    pools: tuple[Pool, ...]

    @property
    def instance_type(self) -> str:
        """The type that they share."""
        return self.pools[0].instance_type

    @property
    def zones(self) -> tuple[str, ...]:
        """Their zones."""
        return tuple(pool.zone for pool in self.pools)


def grouped(bids: tuple[PoolBid, ...]) -> list[BidGroup]:
    """One group per machine type, in the order of preference of its first bid."""
    pools: dict[str, list[Pool]] = {}
    for bid in bids:
        held = pools.setdefault(bid.pool.instance_type, [])
        if bid.pool not in held:
            held.append(bid.pool)
    return [BidGroup(tuple(found)) for found in pools.values()]


def too_dear(
    order: LaunchOrder, price_of: Callable[[Pool], int | None]
) -> tuple[tuple[PoolRefusal, ...], tuple[PoolBid, ...]]:
    """Compute Engine takes no highest price, so it is kept here: refusals, and what is left."""
    refused, left = [], []
    for bid in order.bids:
        limit = bid.max_price_microusd_per_hour
        price = None if limit is None else price_of(bid.pool)
        if limit is not None and price is not None and price > limit:
            text = f"it costs {price} micro-USD an hour, {limit} is the most we pay"
            refused.append(PoolRefusal(bid.pool, RefusalKind.PRICE_TOO_LOW, text))
        else:
            left.append(bid)
    return tuple(refused), tuple(left)


def pools_named(pools: tuple[Pool, ...], message: str) -> tuple[Pool, ...]:
    """Those whose zone an error's message names, all where it names none."""
    named = tuple(
        pool for pool in pools if f"{pool.zone}'" in message or message.endswith(pool.zone)
    )
    return named or pools
