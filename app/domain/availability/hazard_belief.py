"""What is believed of pools: which hazard model each follows, its state now, and for how long.

A belief is a weight per model of `pool_hazards`, moved by what was observed and forgotten over two
days, because pools change their ways. Of a pool that is watched the age of its state is known; of
one out of sight each model gives chances of all states and ages, which the next observation sorts
out (the forward pass of a hidden Markov model). Here: beliefs, remaining lives, chances. Not here:
the models (`pool_hazards`), or what to do about it (`placement_choice`).
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.domain.availability.pool_hazards import (
    FORGETTING_HOURS,
    MODELS,
    PHASE_ENDS,
    PHASES,
    Floats,
    HazardModels,
    life_from_phase,
    life_within_phase,
    phase_of,
    time_shares,
)

EVIDENCE_SHARE: Final = 0.5
"""Ticks of one outage are not independent: evidence counts by this much."""

_PROBABILITY_MAX: Final = 0.98
_TINY: Final = 1e-12
_PART: Final = (slice(PHASES, 2 * PHASES), slice(0, PHASES))
"""Where the phases of a state are: down, up."""


class HazardBelief:
    """What is believed of some pools.

    evidence [pools, models]: log likelihoods. last: 1 up, 0 down, -1 never seen; seen so
    seen_ago_seconds ago. age_seconds: how long it has been so, where `aged`. phases [pools, models,
    up then down phases]: chances of each, where not.
    """

    def __init__(self, pools: int, log_prior: Floats, models: HazardModels = MODELS) -> None:
        self.models = models
        self.log_prior = log_prior
        self.evidence = np.zeros((pools, models.count))
        self.last = np.full(pools, -1)
        self.seen_ago_seconds = np.zeros(pools)
        self.age_seconds = np.zeros(pools)
        self.phases = np.tile(time_shares(models), (pools, 1, 1))
        self._watched = np.zeros(pools, bool)  # the last change was seen, as far as it was watched
        self._life = life_from_phase(models)
        self._life_within = life_within_phase(models)
        self._step_seconds = 0.0
        self._log_chance = self._transitions = np.zeros(0)

    @property
    def aged(self) -> NDArray[np.bool_]:
        """[pools]: whether the age of the present state is known."""
        known: NDArray[np.bool_] = self._watched & (self.seen_ago_seconds == 0)
        return known

    def weights(self) -> Floats:
        """[pools, models], each row summing to 1."""
        return _normal(self.log_prior + self.evidence)

    def weights_if_up(self) -> Floats:
        """[pools, models], were each pool found up now."""
        hidden = np.flatnonzero((self.seen_ago_seconds > 0) | (self.last < 0))
        if not len(hidden):
            return self.weights()
        logs = self.log_prior + self.evidence
        logs[hidden] += np.log(self.phases[hidden][:, :, _PART[1]].sum(axis=2) + _TINY)
        return _normal(logs)

    def learn(self, past_up: NDArray[np.bool_], step_seconds: float) -> None:
        """Take in a past that was seen whole: [pools, steps], the newest last."""
        pools, steps = past_up.shape
        if steps == 0:
            return
        self._prepare(step_seconds)
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
            self.evidence[pool] = sums @ self._log_chance.reshape(4 * PHASES, -1)
            self.last[pool] = up[-1]
            self.age_seconds[pool] = age[-1]
        self._watched[:] = True
        self.seen_ago_seconds[:] = 0.0

    def observe(self, seen: NDArray[np.intp], step_seconds: float) -> None:
        """One step on: 1 up, 0 down, -1 not seen, per pool."""
        self._prepare(step_seconds)
        self.evidence *= np.exp(-step_seconds / 3600 / FORGETTING_HOURS)
        known, aged, followed = seen >= 0, self.aged, self.seen_ago_seconds == 0
        changed = seen != self.last
        self._spread(np.flatnonzero(aged & ~known), step_seconds)
        hidden = np.flatnonzero(~(aged & known))
        if len(hidden):
            ahead = np.matmul(self.phases[hidden].transpose(1, 0, 2), self._transitions)
            self.phases[hidden] = ahead.transpose(1, 0, 2)
        watched = np.flatnonzero(aged & known)
        phases = phase_of(self.age_seconds[watched])
        was = self.last[watched]
        self.evidence[watched] += self._log_chance[changed[watched].astype(int), was, phases]
        for pool in np.flatnonzero(known & ~aged):
            self._find(int(pool), int(seen[pool]))
        turned = known & changed & followed & (self.last >= 0)
        self.age_seconds = np.where(turned, step_seconds, self.age_seconds + step_seconds)
        self._watched = turned | aged
        self.last = np.where(known, seen, self.last)
        self.seen_ago_seconds = np.where(known, 0.0, self.seen_ago_seconds + step_seconds)

    def reveal(self, pool: int, up: bool, step_seconds: float) -> None:
        """A state found out within the present step, by a launch attempt or a probe."""
        self._prepare(step_seconds)
        before, followed = self.last[pool], self.seen_ago_seconds[pool] <= step_seconds
        turned = followed and before >= 0 and before != up
        self._find(pool, int(up))
        if turned:
            self.age_seconds[pool] = step_seconds
        self._watched[pool] = turned or (followed and self._watched[pool])
        self.last[pool] = int(up)
        self.seen_ago_seconds[pool] = 0.0

    def chances(self, pool: int, state: int | None, step_seconds: float) -> Floats:
        """[models, up then down phases] of one pool, summing to 1.

        state: were it found up (1) or down (0) now; None: as it is believed to be.
        """
        found = self.phases[pool]
        if self.aged[pool] and state in (None, int(self.last[pool])):
            self._spread(np.array([pool]), step_seconds)
            weights = self.weights()[pool]
            found = self.phases[pool]
        elif state is None:
            weights = self.weights()[pool]
        else:
            found = np.zeros_like(found)
            found[:, _PART[state]] = self.phases[pool][:, _PART[state]]
            if found.sum(axis=1).max() <= _TINY:
                found[:, _PART[state].start] = 1.0  # it is known to be otherwise: it would be new
            weights = _normal((self.log_prior + self.evidence)[pool : pool + 1])[0]
            chance = found.sum(axis=1)
            weights = weights * (chance + _TINY) ** EVIDENCE_SHARE
            weights /= weights.sum()
        chances: Floats = weights[:, None] * found / (found.sum(axis=1, keepdims=True) + _TINY)
        return chances

    def up_chances(self) -> Floats:
        """[pools]: the chance that each is up now."""
        up = (self.weights() * self.phases[:, :, _PART[1]].sum(axis=2)).sum(axis=1)
        seen = (self.seen_ago_seconds == 0) & (self.last >= 0)
        chances: Floats = np.where(seen, self.last, up)
        return chances

    def remaining_hours(self, step_seconds: float, cap_hours: float) -> Floats:
        """Expected hours until each pool is lost, were it up now."""
        aged, phase = self._up_phase(step_seconds)
        age = np.maximum(0.0, self.age_seconds - step_seconds)
        hazard = self.models.up[:, phase].T  # [pools, models]
        to_end = np.append(PHASE_ENDS, np.inf)[phase] - age
        survives = np.exp(-hazard * (to_end / 3600)[:, None])
        later = self._life[:, np.minimum(phase + 1, PHASES - 1)].T
        life = (1 - survives) / hazard + survives * later
        life = self._or_spread(aged, life, self._life_within)
        mean: Floats = (self.weights_if_up() * np.minimum(life, cap_hours)).sum(axis=1)
        return mean

    def hazard_per_hour(self, step_seconds: float) -> Floats:
        """Expected interruptions per hour of each pool, were it up now."""
        aged, phase = self._up_phase(step_seconds)
        hazard = self._or_spread(aged, self.models.up[:, phase].T, self.models.up)
        mean: Floats = (self.weights_if_up() * hazard).sum(axis=1)
        return mean

    def _up_phase(self, step_seconds: float) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
        """Whether the pool is up for a known time, and the phase at the step's beginning if so."""
        up = self.aged & (self.last == 1)
        return up, phase_of(np.maximum(0.0, self.age_seconds - step_seconds))

    def _or_spread(self, aged: NDArray[np.bool_], exact: Floats, by_phase: Floats) -> Floats:
        """`exact` where the age is known, else the mean of `by_phase` [models, phases], if up."""
        if aged.all():
            return exact
        up = self.phases[:, :, _PART[1]].copy()
        up[(self.last == 0) & (self.seen_ago_seconds == 0)] = np.eye(1, PHASES)  # it would be new
        mean = (up * by_phase).sum(axis=2) / (up.sum(axis=2) + _TINY)
        merged: Floats = np.where(aged[:, None], exact, mean)
        return merged

    def _find(self, pool: int, state: int) -> None:
        """Take in that the pool is in this state, by its chances to be."""
        found = self.phases[pool][:, _PART[state]].copy()
        chance = found.sum(axis=1)
        self.evidence[pool] += np.log(chance + _TINY)
        self.phases[pool] = 0.0
        self.phases[pool][:, _PART[state]] = found / (chance[:, None] + _TINY)

    def _spread(self, rows: NDArray[np.intp], step_seconds: float) -> None:
        """Chances of phases from ages that are known, as of the step's beginning."""
        if len(rows):
            phases = phase_of(np.maximum(0.0, self.age_seconds[rows] - step_seconds))
            places = np.where(self.last[rows] == 1, 0, PHASES) + phases
            # Replaced whole: other threads read the same belief, and never find a row empty.
            self.phases[rows] = np.eye(2 * PHASES)[places][:, None, :]

    def _prepare(self, step_seconds: float) -> None:
        """Log likelihoods of one step [changed, state, phase, models], and its transitions."""
        if step_seconds == self._step_seconds:
            return
        hazards = np.stack([self.models.down, self.models.up])  # by state
        ends = np.minimum(1 - np.exp(-hazards * step_seconds / 3600), _PROBABILITY_MAX)
        both = np.stack([np.log(1 - ends), np.log(ends)])
        self._log_chance = both.transpose(0, 1, 3, 2)
        self._transitions = self.models.transitions(step_seconds)
        self._step_seconds = step_seconds


def _normal(logs: Floats) -> Floats:
    """Weights of each row from its log likelihoods."""
    scaled = EVIDENCE_SHARE * logs
    scaled -= scaled.max(axis=1, keepdims=True)
    weights: Floats = np.exp(scaled)
    weights /= weights.sum(axis=1, keepdims=True)
    return weights
