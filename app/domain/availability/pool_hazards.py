"""How long spot capacity lasts and stays away: hazards by age, and what is believed of a pool.

A pool is up or down. Its chance to change depends on how long it has been so: fresh capacity and
fresh outages end soon, old ones last. MODELS are the pairs of `hazard_models` as arrays; a belief
(`hazard_belief`) is a weight per model. Here is what follows from each model alone: transitions,
lives, shares of time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.domain.availability.hazard_by_age import AGE_EDGES_SECONDS, BACK_PER_HOUR, TAKEN_PER_HOUR
from app.domain.availability.hazard_models import (
    PAIRS,
    POOL_WEIGHTS,
    SEVERAL_POOLS_WEIGHTS,
    log_weights,
)

Floats = NDArray[np.float64]

PHASES: Final = 5
"""Ages are told apart as up to 10 min, 30 min, 2 h, 8 h, and older."""

PHASE_ENDS: Final = np.array(AGE_EDGES_SECONDS, dtype=np.float64)
_STARTS: Final = np.array([0.0, *AGE_EDGES_SECONDS])

_UP_SHAPE: Final = np.array(TAKEN_PER_HOUR)
_DOWN_SHAPE: Final = np.array(BACK_PER_HOUR)
FORGETTING_HOURS: Final = 48.0
"""Pools change their ways: what was seen so long ago counts 1/e."""


@dataclass(frozen=True)
class HazardModels:
    """Ends per hour of up and of down times, [models, phases]."""

    up: Floats
    down: Floats

    @property
    def count(self) -> int:
        """How many models."""
        return len(self.up)

    def transitions(self, seconds: float) -> Floats:
        """[models, 10, 10]: from phase to phase in one step; up phases first, then down ones.

        A phase is left for the next at the rate that keeps the mean time in it.
        """
        hours = seconds / 3600
        advance = np.minimum(1.0, seconds / np.diff(_STARTS, append=np.inf))
        matrix = np.zeros((self.count, 2 * PHASES, 2 * PHASES))
        for hazards, here, other in ((self.up, 0, PHASES), (self.down, PHASES, 0)):
            ends = 1 - np.exp(-hazards * hours)
            for phase in range(PHASES):
                later = min(phase + 1, PHASES - 1)
                stays = 1 - ends[:, phase]
                matrix[:, here + phase, other] += ends[:, phase]
                matrix[:, here + phase, here + later] += stays * advance[phase]
                matrix[:, here + phase, here + phase] += stays * (1 - advance[phase])
        return matrix


MODELS: Final = HazardModels(
    up=np.array([_UP_SHAPE * taken for taken, _ in PAIRS]),
    down=np.array([_DOWN_SHAPE * back for _, back in PAIRS]),
)
POOL_LOG_PRIOR: Final = np.array(log_weights(POOL_WEIGHTS))
SEVERAL_POOLS_LOG_PRIOR: Final = np.array(log_weights(SEVERAL_POOLS_WEIGHTS))


def phase_of(age_seconds: Floats) -> NDArray[np.intp]:
    """The phase of each age."""
    return np.searchsorted(PHASE_ENDS, age_seconds + 1e-6, side="right")


def life_from_phase(models: HazardModels) -> Floats:
    """[models, phases]: mean life in hours from the beginning of a phase on."""
    up = models.up
    life = 1 / up
    for phase in range(PHASES - 2, -1, -1):
        length = (PHASE_ENDS[phase] - _STARTS[phase]) / 3600
        survives = np.exp(-up[:, phase] * length)
        life[:, phase] = (1 - survives) / up[:, phase] + survives * life[:, phase + 1]
    return life


def life_within_phase(models: HazardModels) -> Floats:
    """[models, phases]: mean life in hours from an unknown moment of a phase on.

    A phase is left for the next at the rate that keeps the mean time in it, as in `transitions`.
    """
    life = 1 / models.up
    for phase in range(PHASES - 2, -1, -1):
        older = 3600 / (PHASE_ENDS[phase] - _STARTS[phase])
        life[:, phase] = (1 + older * life[:, phase + 1]) / (models.up[:, phase] + older)
    return life


def time_shares(models: HazardModels) -> Floats:
    """[models, 2 x phases]: the share of all time spent in each phase; up ones first."""
    hours = np.diff(_STARTS, append=np.inf) / 3600
    spent = []
    for hazards in (models.up, models.down):
        outlives = np.exp(-hazards * hours)  # 0 in the last phase, which has no end
        reached = np.cumprod(np.hstack([np.ones((models.count, 1)), outlives[:, :-1]]), axis=1)
        spent.append(reached * (1 - outlives) / hazards)
    shares: Floats = np.hstack(spent)
    shares /= shares.sum(axis=1, keepdims=True)
    return shares
