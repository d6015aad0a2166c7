"""What a launch gets: checks of the order, and the choice among its pools.

Here: decisions over plain values. Not here: starting anything (`local_cloud`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from app.adapters.providers.local.market.market import PoolMarket, RecordedMarkets
from app.domain.market.offer import Market, Pool
from app.ports.cloud_provider import RefusalKind


class CloudRefusal(Exception):
    """A call failed as a whole."""

    def __init__(self, kind: RefusalKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True)
class LaunchRequest:
    """A launch as it came over the wire. bids: pool key and highest price, None = on-demand's.

    disk_gb is written down with the machines, for their bill: they share this machine's disk.
    """

    client_token: str
    count: int
    min_count: int
    market: str
    bids: tuple[tuple[str, int | None], ...]
    user_data: dict[str, str]
    tags: dict[str, str]
    disk_gb: int | None = None

    @property
    def digest(self) -> str:
        """The same for equal orders; keeps the secrets in the user data out of the journal."""
        return hashlib.sha256(json.dumps(vars(self), sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Allocation:
    """Where how many machines start; `market` None: nowhere. refused: pools passed over."""

    market: PoolMarket | None
    count: int
    refused: tuple[dict[str, Any], ...]


def read_order(document: dict[str, Any], machines_max: int) -> LaunchRequest:
    """The order in a request. Raises CloudRefusal `rejected` saying what is wrong."""
    try:
        order = LaunchRequest(
            client_token=document["client_token"],
            count=document["count"],
            min_count=document["min_count"],
            market=document["market"],
            bids=tuple(
                (bid["pool"], bid["max_price_microusd_per_hour"]) for bid in document["bids"]
            ),
            user_data=document["user_data"],
            tags=document["tags"],
            disk_gb=document.get("disk_gb"),
        )
    except (KeyError, TypeError) as error:
        raise CloudRefusal(RefusalKind.REJECTED, f"launch: {error!r} is missing") from error
    problem = _problem(order, machines_max)
    if problem:
        raise CloudRefusal(RefusalKind.REJECTED, f"launch: {problem}")
    return order


def _problem(order: LaunchRequest, machines_max: int) -> str | None:
    if not order.client_token:
        return "client_token is empty"
    if not 1 <= order.min_count <= order.count <= machines_max:
        return f"needs 1 <= min_count <= count <= {machines_max}"
    if not order.bids:
        return "names no pool"
    if any(not key.endswith(f"/{order.market}") for key, _ in order.bids):
        return f"every pool must be of its market, {order.market}"
    for name, value in order.user_data.items():
        if not name or "=" in name or "\0" in name + value:
            return f"user data {name!r} cannot be an environment variable"
    return None


def choose_pool(
    order: LaunchRequest,
    markets: RecordedMarkets,
    running: Callable[[Pool], int],
    at_us: int,
) -> Allocation:
    """The first pool, in the order's preference, that holds `count`; else the first `min_count`."""
    refused: list[dict[str, Any]] = []
    partial: tuple[PoolMarket, int] | None = None
    for key, highest in order.bids:
        market, refusal = _ask(key, highest, markets, at_us)
        if market is None:
            refused.append(refusal)
            continue
        offered = markets.offered(market.pool, at_us)
        room = order.count if offered is None else max(0, offered - running(market.pool))
        if room >= order.count:
            return Allocation(market, order.count, tuple(refused))
        refused.append(
            _refusal(key, RefusalKind.NO_CAPACITY, f"room for {room} of {order.count} machines")
        )
        if partial is None and room >= order.min_count:
            partial = (market, room)
    if partial is None:
        return Allocation(None, 0, tuple(refused))
    return Allocation(*partial, tuple(refused))


def _ask(
    key: str, highest: int | None, markets: RecordedMarkets, at_us: int
) -> tuple[PoolMarket | None, dict[str, Any]]:
    """The pool's market, or why it does not come into question."""
    try:
        pool = Pool.parse(key)
    except ValueError as error:
        return None, _refusal(key, RefusalKind.UNSUPPORTED, str(error))
    market = markets.pool(pool)
    if market is None:
        return None, _refusal(key, RefusalKind.UNSUPPORTED, "this type is not offered there")
    price = markets.price_at(pool, at_us)
    limit = market.on_demand_microusd if highest is None else highest
    if pool.market is Market.SPOT and price > limit:
        message = f"the price is {price} micro-USD per hour, above the highest accepted, {limit}"
        return None, _refusal(key, RefusalKind.PRICE_TOO_LOW, message)
    return market, {}


def _refusal(key: str, kind: RefusalKind, message: str) -> dict[str, Any]:
    return {"pool": key, "kind": kind.value, "message": message}
