"""How common each hazard model is, before a pool has been seen: fitted weights, as data.

Rows are scalings of the interruption hazard, columns of the recovery hazard, as in MODELS. Fitted
by expectation maximisation to recorded pools (and to sets of two or more pools, up while any is),
with a floor, so that no model is ever ruled out. `app.backtest.fit_priors` fits
such weights again; docs/backtest.md compares them. Not here: the models, or how evidence moves
the weights.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

_POOL: Final = (
    (0.002, 0.002, 0.002, 0.002, 0.002),
    (0.002, 0.002, 0.005, 0.004, 0.002),
    (0.003, 0.008, 0.539, 0.170, 0.004),
    (0.005, 0.033, 0.142, 0.062, 0.002),
    (0.002, 0.002, 0.002, 0.002, 0.002),
)
_SEVERAL_POOLS: Final = (
    (0.001, 0.001, 0.003, 0.042, 0.005),
    (0.001, 0.001, 0.486, 0.002, 0.001),
    (0.001, 0.001, 0.120, 0.330, 0.001),
    (0.001, 0.001, 0.001, 0.001, 0.001),
    (0.001, 0.001, 0.001, 0.001, 0.001),
)


def _logs(weights: tuple[tuple[float, ...], ...]) -> NDArray[np.float64]:
    flat = np.array(weights).ravel()
    logs: NDArray[np.float64] = np.log(flat / flat.sum())
    return logs


POOL_LOG_PRIOR: Final = _logs(_POOL)
SEVERAL_POOLS_LOG_PRIOR: Final = _logs(_SEVERAL_POOLS)
