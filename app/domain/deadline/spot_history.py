"""A recorded past, ridden on spot: what it would have cost, and how often one had to move on.

Not here: hazards (`pool_hazards`), or the tables that these figures choose (`cost_to_go`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class SpotRun:
    """A past ride on the cheapest pool, moving on when lost: ticks up, their prices, moves."""

    ticks: int
    price_sum: float
    moves: int


def past_spot_run(up: NDArray[np.bool_], prices: NDArray[np.float64]) -> SpotRun:
    """What always being on spot would have been like, [pools, ticks]."""
    pool, ticks, moves, price_sum = -1, 0, 0, 0.0
    for states, costs in zip(up.T.tolist(), prices.T.tolist(), strict=True):
        if pool >= 0 and not states[pool]:
            pool = -1
            moves += any(states)
        if pool < 0 and any(states):
            pool = min((i for i, state in enumerate(states) if state), key=costs.__getitem__)
        if pool >= 0:
            ticks += 1
            price_sum += costs[pool]
    return SpotRun(ticks, price_sum, moves)
