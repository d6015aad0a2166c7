"""SkyNomad's rule (arXiv 2601.06520), from the paper: the pool of the highest hourly utility.

    U(pool) = V (L - d) / L - price - egress / L,
    V = on-demand price x pace needed / pace planned

with d the restart and L the mean remaining life by the Nelson-Aalen estimate of observed lives,
at most two hours, as the paper's artifact caps it. Unknown pools are probed every two hours.
Its factor for volatility is left out. Here: that rule. Not here: the other baselines (`baselines`).
"""

from __future__ import annotations

import math

from app.backtest.baselines import SpotSeeker
from app.backtest.policy_view import (
    ON_DEMAND,
    WAIT,
    Briefing,
    JobView,
    PolicyAction,
    PolicyChoice,
    PoolState,
    RunningCapacity,
)

LIFE_HOURS_MAX = 2.0
PROBE_EVERY_HOURS = 2.0
LIVES_KEPT = 50
"""Observed lives per pool; older ones are forgotten."""


class ObservedLives:
    """Lives of one pool as far as they were seen, in hours."""

    def __init__(self) -> None:
        self.ended: list[float] = []
        self.up_since: float | None = None

    def see(self, up: bool, now_hours: float) -> None:
        """The pool was up or down at this time."""
        if up and self.up_since is None:
            self.up_since = now_hours
        elif not up and self.up_since is not None:
            self.ended = [*self.ended, now_hours - self.up_since][-LIVES_KEPT:]
            self.up_since = None

    def remaining_hours(self, now_hours: float) -> float:
        """Mean remaining life at the present age, at most LIFE_HOURS_MAX."""
        age = 0.0 if self.up_since is None else now_hours - self.up_since
        survival, mean, at = 1.0, 0.0, age
        lives = sorted(life for life in self.ended if life > age)
        for index, life in enumerate(lives):
            if life - age >= LIFE_HOURS_MAX:
                break
            mean += survival * (life - at)
            at_risk = len(lives) - index + (self.up_since is not None)
            survival *= math.exp(-1 / at_risk)
            at = life
        return mean + survival * (age + LIFE_HOURS_MAX - at)


class SkyNomad(SpotSeeker):
    """Takes the pool, on-demand or nothing, by utility per hour."""

    def __init__(self, briefing: Briefing) -> None:
        super().__init__(briefing)
        self.lives = [ObservedLives() for _ in briefing.pools]
        self.looked_at = [-PROBE_EVERY_HOURS] * len(briefing.pools)

    def decide(self, view: JobView) -> PolicyChoice:
        """The best of the known and the untried, unless the deadline commands."""
        now = view.tick * self.tick_seconds / 3600
        for pool, seen in enumerate(view.seen):
            if seen != PoolState.UNKNOWN:
                self.lives[pool].see(seen == PoolState.UP, now)
                self.looked_at[pool] = now
        forced = self.guarded(view, WAIT)
        if forced != WAIT:
            return forced
        for pool, seen in enumerate(view.seen):
            if seen == PoolState.UNKNOWN and now - self.looked_at[pool] >= PROBE_EVERY_HOURS:
                self.looked_at[pool] = now
                return PolicyChoice(PolicyAction.PROBE, pool)
        return self._best(view, now)

    def _best(self, view: JobView, now: float) -> PolicyChoice:
        terms, on_demand = self.terms, self.briefing.on_demand
        time_left = terms.deadline_seconds - view.tick * self.tick_seconds
        left = terms.job_seconds - view.progress_seconds
        pace = (left / time_left) / (terms.job_seconds / terms.deadline_seconds)
        value = on_demand * pace
        stays = view.running_on == RunningCapacity.ON_DEMAND
        start = 0.0 if stays else terms.overhead_seconds
        best = value * max(0.0, 1 - start / left) - on_demand
        choice = ON_DEMAND
        if best <= 0:
            best, choice = 0.0, WAIT
        for pool, seen in enumerate(view.seen):
            if seen == PoolState.DOWN:
                continue
            life = self.lives[pool].remaining_hours(now)
            here = view.running_on == RunningCapacity.SPOT and pool == view.pool
            restart = (0.0 if here else terms.overhead_seconds) / 3600
            egress = 0.0 if here or view.pool in (-1, pool) else terms.egress_usd
            worth = value * max(0.0, 1 - restart / life) - view.prices[pool] - egress / life
            if worth > best:
                best, choice = worth, PolicyChoice(PolicyAction.SPOT, pool)
        return choice
