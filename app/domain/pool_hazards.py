"""How long spot capacity lasts and stays away: hazards by age, and what is believed of a pool.

A pool is up or down. Its chance to change depends on how long it has been so: fresh capacity and
fresh outages end soon, old ones last. MODELS are 5 x 5 scalings of one shape; a belief is a weight
per model, moved by what was observed and forgotten over two days, because pools change their
ways. Here: models, priors, beliefs, expected remaining life. Not here: what to do about it
(`cost_to_go`, `placement_choice`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.domain.pool_life import AGE_EDGES_SECONDS, BACK_PER_HOUR, TAKEN_PER_HOUR

Floats = NDArray[np.float64]

PHASES: Final = 5
"""Ages are told apart as up to 10 min, 30 min, 2 h, 8 h, and older."""

_PHASE_ENDS: Final = np.array(AGE_EDGES_SECONDS, dtype=np.float64)
_PHASE_STARTS: Final = np.array([0.0, *AGE_EDGES_SECONDS])

_UP_SHAPE: Final = np.array(TAKEN_PER_HOUR)
_DOWN_SHAPE: Final = np.array(BACK_PER_HOUR)
_SCALES: Final = (0.2, 0.45, 1.0, 2.2, 5.0)

FORGETTING_HOURS: Final = 48.0
"""Evidence this old counts 1/e."""

EVIDENCE_SHARE: Final = 0.5
"""Ticks of one outage are not independent: evidence counts by this much."""

_UNKNOWN_AGE_SECONDS: Final = 1800.0
_PROBABILITY_MAX: Final = 0.98


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
        advance = np.minimum(1.0, seconds / np.diff(_PHASE_STARTS, append=np.inf))
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
    up=np.array([_UP_SHAPE * up for up in _SCALES for _ in _SCALES]),
    down=np.array([_DOWN_SHAPE * down for _ in _SCALES for down in _SCALES]),
)


def phase_of(age_seconds: Floats) -> NDArray[np.intp]:
    """The phase of each age."""
    return np.searchsorted(_PHASE_ENDS, age_seconds + 1e-6, side="right")


def _life_from_phase(models: HazardModels) -> Floats:
    """[models, phases]: mean life in hours from the beginning of a phase on."""
    up = models.up
    life = 1 / up
    for phase in range(PHASES - 2, -1, -1):
        length = (_PHASE_ENDS[phase] - _PHASE_STARTS[phase]) / 3600
        survives = np.exp(-up[:, phase] * length)
        life[:, phase] = (1 - survives) / up[:, phase] + survives * life[:, phase + 1]
    return life


class HazardBelief:
    """What is believed of some pools: weights [pools, models], present state and age.

    last: 1 up, 0 down, -1 never seen. age_seconds: how long it is known to have been so.
    """

    def __init__(self, pools: int, log_prior: Floats, models: HazardModels = MODELS) -> None:
        self.models = models
        self.log_prior = log_prior
        self.evidence = np.zeros((pools, models.count))
        self.last = np.full(pools, -1)
        self.age_seconds = np.full(pools, _UNKNOWN_AGE_SECONDS)
        self.seen_ago_seconds = np.zeros(pools)
        self._life = _life_from_phase(models)
        self._step_seconds = 0.0
        self._log_chance = np.zeros(0)

    def weights(self) -> Floats:
        """[pools, models], each row summing to 1."""
        logs = EVIDENCE_SHARE * (self.log_prior + self.evidence)
        logs -= logs.max(axis=1, keepdims=True)
        weights: Floats = np.exp(logs)
        weights /= weights.sum(axis=1, keepdims=True)
        return weights

    def learn(self, past_up: NDArray[np.bool_], step_seconds: float) -> None:
        """Take in a past that was seen whole: [pools, steps], the newest last."""
        pools, steps = past_up.shape
        if steps == 0:
            return
        chance = self._log_chances(step_seconds)
        forget = np.exp(-step_seconds / 3600 / FORGETTING_HOURS)
        weight = forget ** np.arange(steps - 2, -1, -1.0)
        at = np.arange(steps)
        for pool in range(pools):
            up = past_up[pool].astype(np.intp)
            changed = up[1:] != up[:-1]
            began = np.maximum.accumulate(np.where(np.r_[False, changed], at, 0))
            age = ((at - began + 1) * step_seconds).astype(np.float64)
            cell = (changed * 2 + up[:-1]) * PHASES + phase_of(age[:-1])
            sums = np.bincount(cell, weights=weight, minlength=4 * PHASES)
            self.evidence[pool] = sums @ chance.reshape(4 * PHASES, -1)
            self.last[pool] = up[-1]
            self.age_seconds[pool] = age[-1]

    def observe(self, seen: NDArray[np.intp], step_seconds: float) -> None:
        """One step on: 1 up, 0 down, -1 not seen, per pool."""
        known = seen >= 0
        changed = seen != self.last
        # A state found again after a while unseen tells little about when it changed.
        followed = known & (self.last >= 0) & (self.seen_ago_seconds == 0)
        self.evidence *= np.exp(-step_seconds / 3600 / FORGETTING_HOURS)
        if followed.any():
            chance = self._log_chances(step_seconds)
            rows = np.flatnonzero(followed)
            phases = phase_of(self.age_seconds[rows])
            self.evidence[rows] += chance[changed[rows].astype(int), self.last[rows], phases]
        fresh = known & changed & (self.last >= 0)
        self.age_seconds += step_seconds
        self.age_seconds[fresh] = np.maximum(step_seconds, self.seen_ago_seconds[fresh] / 2)
        self.last = np.where(known, seen, self.last)
        self.seen_ago_seconds = np.where(known, 0.0, self.seen_ago_seconds + step_seconds)

    def reveal(self, pool: int, up: bool, step_seconds: float) -> None:
        """A state found out within the present step, by a launch attempt or a probe."""
        before, ago = self.last[pool], self.seen_ago_seconds[pool]
        if before >= 0 and ago <= step_seconds:
            age = np.array([self.age_seconds[pool] - step_seconds])
            chance = self._log_chances(step_seconds)
            self.evidence[pool] += chance[int(before != up), before, phase_of(age)[0]]
        if before >= 0 and before != up:
            self.age_seconds[pool] = max(step_seconds, ago / 2)
        self.last[pool] = int(up)
        self.seen_ago_seconds[pool] = 0.0

    def age_if(self, state: int, step_seconds: float) -> Floats:
        """For how long each pool would have been in this state at the beginning of the step.

        One last seen otherwise has changed since: on average half of the time ago.
        """
        as_seen = np.maximum(0.0, self.age_seconds - step_seconds)
        return np.where(self.last == state, as_seen, self.seen_ago_seconds / 2)

    def remaining_hours(self, step_seconds: float, cap_hours: float) -> Floats:
        """Expected hours until each pool is lost, were it up now."""
        age = self.age_if(1, step_seconds)
        phase = phase_of(age)
        hazard = self.models.up[:, phase].T  # [pools, models]
        to_end = np.append(_PHASE_ENDS, np.inf)[phase] - age
        survives = np.exp(-hazard * (to_end / 3600)[:, None])
        later = self._life[:, np.minimum(phase + 1, PHASES - 1)].T
        life = (1 - survives) / hazard + survives * later
        mean: Floats = (self.weights() * np.minimum(life, cap_hours)).sum(axis=1)
        return mean

    def hazard_per_hour(self, step_seconds: float) -> Floats:
        """Expected interruptions per hour of each pool, were it up now."""
        age = self.age_if(1, step_seconds)
        mean: Floats = (self.weights() * self.models.up[:, phase_of(age)].T).sum(axis=1)
        return mean

    def _log_chances(self, step_seconds: float) -> Floats:
        """[changed, state, phase, models]: log likelihood of one step."""
        if step_seconds != self._step_seconds:
            hazards = np.stack([self.models.down, self.models.up])  # by state
            ends = np.minimum(1 - np.exp(-hazards * step_seconds / 3600), _PROBABILITY_MAX)
            both = np.stack([np.log(1 - ends), np.log(ends)])
            self._log_chance = both.transpose(0, 1, 3, 2)
            self._step_seconds = step_seconds
        return self._log_chance
