"""What the product would have foretold for a job of the replay, from what was known before it.

Lives here: the question that `estimate.job_estimate` is asked for a window, and a pool's experience
out of its recorded past. Not here: the estimate itself, or how often it held (`report`).
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.adapters.seeded_draws import seeded_draws
from app.backtest.policy_view import Terms
from app.backtest.traces import Window
from app.domain.availability.hazard_by_age import AGE_EDGES_SECONDS, NO_EXPERIENCE, Experience
from app.domain.estimate.job_estimate import Forecast, estimate
from app.domain.estimate.simulated_run import EstimateInput, PoolQuote

PATHS: Final = 200
_SEED: Final = 1
_MICRO: Final = 1_000_000


def foretold(window: Window, terms: Terms) -> Forecast:
    """The product's estimate for a job that begins with the window, prices as in its first tick."""
    quotes = [
        PoolQuote(
            key=pool,
            microusd_per_hour=round(float(window.prices[row, 0]) * _MICRO),
            experience=experience(window.past_up[row], window.tick_seconds),
        )
        for row, pool in enumerate(window.pools)
    ]
    question = EstimateInput(
        work_seconds=terms.job_seconds,
        spot=tuple(sorted(quotes, key=lambda quote: quote.microusd_per_hour)),
        on_demand=PoolQuote("on-demand", round(window.on_demand * _MICRO)),
        boot_seconds=terms.overhead_seconds,
        acquire_seconds=0.0,
        rework_seconds=terms.checkpoint_seconds,
        deadline_seconds=terms.deadline_seconds,
    )
    return estimate("auto", question, seeded_draws(_SEED), PATHS)


def experience(past_up: NDArray[np.bool_], tick_seconds: int) -> Experience:
    """A pool's past as one machine after the other there would have known it.

    A launch for each time up and each outage, refused in proportion to the time without capacity.
    """
    if not len(past_up):
        return NO_EXPERIENCE
    lived, taken = [0.0] * (len(AGE_EDGES_SECONDS) + 1), [0] * (len(AGE_EDGES_SECONDS) + 1)
    changes = (np.flatnonzero(np.diff(past_up.astype(int))) + 1).tolist()
    ends = [*changes, len(past_up)]
    for begin, end in zip([0, *changes], ends, strict=True):
        if not past_up[begin]:
            continue
        seconds, younger = float(end - begin) * tick_seconds, 0.0
        for age, older in enumerate((*AGE_EDGES_SECONDS, math.inf)):
            lived[age] += max(0.0, min(seconds, older) - younger)
            taken[age] += younger < seconds <= older and end < len(past_up)
            younger = older
    launches = len(ends)
    refused = round(launches * (1 - float(past_up.mean())))
    return Experience(tuple(lived), tuple(taken), launches, refused)
