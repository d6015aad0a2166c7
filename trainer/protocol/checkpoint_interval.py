"""How often to save: Young's and Daly's optimum for a cost per checkpoint and a hazard.

Pure and standard library only: the trainer asks it while it runs, the control plane to estimate.

Sources: J. W. Young, A first order approximation to the optimum checkpoint interval (CACM 17/9,
1974); J. T. Daly, A higher order estimate of the optimum checkpoint interval for restart dumps
(Future Generation Computer Systems 22, 2006), equation 37.
"""

from __future__ import annotations

import math

DEFAULT_MEAN_SECONDS = 7_200.0
"""Mean time between unannounced losses where nobody knows better."""

_HOUR = 3_600.0


def optimal_interval_seconds(cost_seconds: float, mean_seconds: float) -> float:
    """Training time between two checkpoints that loses the least in all.

    cost_seconds: what one checkpoint takes from training: its stall and what it slows steps down,
    not the time until it is durable. mean_seconds: mean time between losses (not negative or 0).
    """
    if cost_seconds <= 0:
        return 0.0
    if cost_seconds >= 2 * mean_seconds:
        return mean_seconds
    share = cost_seconds / (2 * mean_seconds)
    young = math.sqrt(2 * cost_seconds * mean_seconds)
    return young * (1 + math.sqrt(share) / 3 + share / 9) - cost_seconds


def checkpoint_interval_seconds(
    cost_seconds: float,
    durable_seconds: float,
    mean_seconds: float = DEFAULT_MEAN_SECONDS,
    least_seconds: float = 0.0,
    most_seconds: float = math.inf,
) -> float:
    """The optimum within bounds: never shorter than one checkpoint takes to become durable."""
    low = max(least_seconds, durable_seconds)
    return max(low, min(optimal_interval_seconds(cost_seconds, mean_seconds), most_seconds))


def mean_seconds_of(losses_per_hour: float) -> float:
    """Mean time between losses of a hazard; the bound on the interval decides where it is 0."""
    return _HOUR / losses_per_hour if losses_per_hour > 0 else math.inf
