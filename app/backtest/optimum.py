"""What a job would have cost at best, had the future been known: an exact dynamic programme.

Here: the forward recursion over (tick, machine, progress). Not here: anything a policy may see.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

FINEST_PROGRESS_SECONDS = 5
"""Where tick and overhead have no coarser common measure, the overhead is rounded down to a grid
of about this; so the optimum stays a lower bound."""


def optimum_by_tick(
    up: NDArray[np.bool_],
    prices: NDArray[np.float64],
    on_demand: float,
    tick_seconds: int,
    overhead_seconds: float,
    job_seconds: float,
) -> NDArray[np.float64]:
    """Least $ with which the job can be finished after n ticks, for n = 0 … ticks; inf if none.

    up, prices [pools, ticks]. A launch takes `overhead_seconds` off the progress at once and every
    tick that runs adds one tick: the same as a restart without progress for any plan that keeps
    a machine beyond its start, and a plan that knows the future starts no others.
    """
    pools, ticks = up.shape
    grid = _grid_seconds(tick_seconds, overhead_seconds)
    step = round(tick_seconds / grid)
    debt = math.floor(overhead_seconds / grid + 1e-9)
    goal = debt + math.ceil(job_seconds / grid - 1e-9)
    rates = np.vstack([prices, np.full((1, ticks), on_demand)]) * (tick_seconds / 3600)
    running = np.full((pools + 1, goal + 1), np.inf)  # by machine and progress + debt
    following = np.empty_like(running)
    stopped = np.full(goal + 1, np.inf)
    stopped[debt] = 0.0
    best = np.full(ticks + 1, np.inf)
    launched = np.full(goal + 1, np.inf)
    for tick in range(ticks):
        launched[: goal + 1 - debt] = stopped[debt:]  # the debt is taken here
        following[:] = np.inf
        for machine in (*np.flatnonzero(up[:, tick]), pools):
            origin = np.minimum(running[machine], launched)
            row = following[machine]
            if step <= goal:
                row[step:] = origin[: goal + 1 - step]
            row[goal] = origin[max(0, goal - step) : goal].min(initial=np.inf)
            row += rates[machine, tick]
        finished = following[:, goal].min()
        best[tick + 1] = min(best[tick], finished)
        following[:, goal] = np.inf
        running, following = following, running
        stopped = np.minimum(stopped, running.min(axis=0))
    return best


def _grid_seconds(tick_seconds: int, overhead_seconds: float) -> float:
    whole = round(overhead_seconds)
    if abs(overhead_seconds - whole) < 1e-6:
        common = math.gcd(tick_seconds, whole) if whole else tick_seconds
        if common >= min(FINEST_PROGRESS_SECONDS, tick_seconds):
            return common
    return tick_seconds / max(1, tick_seconds // FINEST_PROGRESS_SECONDS)
