"""The published policies that Lowtide's own is measured against.

Sources: greedy and Uniform Progress, "Can't Be Late" (NSDI '24) and its code (`rc_cr_threshold`);
the evolved policy, appendix D2 of GEPA's optimize_anything; UP(S), arXiv 2601.06520. Here: what
each does in a tick. Not here: SkyNomad's rule (`skynomad`), Lowtide's policy, or the replay.
"""

from __future__ import annotations

import math
import re

from app.backtest.policy_view import (
    ON_DEMAND,
    WAIT,
    WHOLE_SECOND,
    Briefing,
    JobView,
    PolicyAction,
    PolicyChoice,
    PoolState,
    RunningCapacity,
    ticks_left,
)

STARTED = 1e-3
"""Seconds of overhead below which a machine counts as started."""


class OnDemandOnly:
    """On-demand from beginning to end."""

    def __init__(self, briefing: Briefing) -> None:
        del briefing

    def decide(self, view: JobView) -> PolicyChoice:
        """Always the same."""
        del view
        return ON_DEMAND


class SpotSeeker:
    """What the baselines share: spot where it is, tried in an order, and the safety net."""

    def __init__(self, briefing: Briefing) -> None:
        self.briefing = briefing
        self.terms = briefing.terms
        self.tick_seconds = briefing.tick_seconds

    def order(self, view: JobView) -> list[int]:
        """Pools in the order they are tried: cheapest first."""
        return sorted(range(len(view.prices)), key=view.prices.__getitem__)

    def spot_or(self, view: JobView, otherwise: PolicyChoice) -> PolicyChoice:
        """The running pool, else the first that may be up, else `otherwise`."""
        if view.running_on == RunningCapacity.SPOT:
            return PolicyChoice(PolicyAction.SPOT, view.pool)
        for pool in self.order(view):
            if view.seen[pool] != PoolState.DOWN:
                return PolicyChoice(PolicyAction.SPOT, pool)
        return otherwise

    def may_have_spot(self, view: JobView) -> bool:
        """Whether a pool is up, or might be."""
        return any(seen != PoolState.DOWN for seen in view.seen)

    def fills_the_time(self, view: JobView, launches: int) -> bool:
        """Whether work and so many starts need every tick that is left."""
        left = self.terms.job_seconds - view.progress_seconds + view.at_risk_seconds
        needed = (left + launches * self.terms.overhead_seconds) / self.tick_seconds
        return math.ceil(needed - WHOLE_SECOND) >= ticks_left(
            self.terms, view.tick, self.tick_seconds
        )

    def guarded(self, view: JobView, choice: PolicyChoice) -> PolicyChoice:
        """`choice`, unless only on-demand, or the spot machine that runs, can be in time."""
        if self.fills_the_time(view, 2) and view.running_on != RunningCapacity.SPOT:
            choice = ON_DEMAND
        if self.fills_the_time(view, 1):
            started = view.overhead_left_seconds < STARTED
            if view.running_on == RunningCapacity.SPOT and started:
                return PolicyChoice(PolicyAction.SPOT, view.pool)
            return ON_DEMAND
        return choice


class Greedy(SpotSeeker):
    """Spot or wait until the last moment, then on-demand for good."""

    def decide(self, view: JobView) -> PolicyChoice:
        """Spot where there is some."""
        return self.guarded(view, self.spot_or(view, WAIT))


class UniformProgress(SpotSeeker):
    """Keeps progress at least proportional to time, with hysteresis on the way back to spot."""

    def decide(self, view: JobView) -> PolicyChoice:
        """Spot; without it on-demand when behind; from on-demand back when clearly ahead."""
        elapsed = view.tick * self.tick_seconds
        if view.running_on == RunningCapacity.ON_DEMAND:
            there_and_back = elapsed + 2 * self.terms.overhead_seconds
            ahead = view.progress_seconds > self._planned(there_and_back)
            choice = self.spot_or(view, ON_DEMAND) if ahead else ON_DEMAND
        else:
            behind = view.progress_seconds < self._planned(elapsed)
            choice = self.spot_or(view, ON_DEMAND if behind else WAIT)
        return self.guarded(view, choice)

    def _planned(self, elapsed_seconds: float) -> float:
        """Progress at a uniform pace; multiplied first, so that ties fall as in the source."""
        return elapsed_seconds * self.terms.job_seconds / self.terms.deadline_seconds


class CheapestUniformProgress(UniformProgress):
    """UP(S): Uniform Progress over pools, cheapest first, after an interruption elsewhere first."""

    def __init__(self, briefing: Briefing) -> None:
        super().__init__(briefing)
        self.regions = [region_of(pool) for pool in briefing.pools]

    def order(self, view: JobView) -> list[int]:
        """Cheapest first; the region of the last spot machine, which is gone, comes last."""
        lost = self.regions[view.pool] if view.pool >= 0 else ""
        return sorted(
            range(len(view.prices)),
            key=lambda pool: (self.regions[pool] == lost, view.prices[pool]),
        )


def region_of(pool: str) -> str:
    """The region of a recording's pool: us-east-1 of us-east-1c_v100_1, us-west1 of us-west1-b."""
    zone = pool.partition("_")[0]
    found = re.fullmatch(r"(.+\d)-?[a-z]", zone)
    return found[1] if found else zone


class Evolved(SpotSeeker):
    """The policy that GEPA evolved for one pool; its constants are compared with seconds, as there.

    For several pools: cheapest first.
    """

    def __init__(self, briefing: Briefing) -> None:
        super().__init__(briefing)
        self.ticks_without_spot = 0
        self._counted_tick = -1

    def decide(self, view: JobView) -> PolicyChoice:
        """Spot where there is some; in an outage wait or not, by slack and its length."""
        spot = self.may_have_spot(view)
        if view.tick != self._counted_tick:
            self._counted_tick = view.tick
            self.ticks_without_spot += 1
        if any(seen == PoolState.UP for seen in view.seen):
            self.ticks_without_spot = 0
        choice = self._wish(view, spot)
        if not self.fills_the_time(view, 1):
            return choice
        if view.was_on == RunningCapacity.SPOT and view.overhead_left_seconds < STARTED:
            return self.spot_or(view, ON_DEMAND)
        return ON_DEMAND

    def _wish(self, view: JobView, spot: bool) -> PolicyChoice:
        overhead = self.terms.overhead_seconds
        left = self.terms.job_seconds - view.progress_seconds
        time_left = self.terms.deadline_seconds - view.tick * self.tick_seconds
        slack = time_left - left - overhead
        on_demand = view.was_on == RunningCapacity.ON_DEMAND
        if left + (overhead if view.was_on == RunningCapacity.SPOT else 0) >= time_left - 0.5:
            return ON_DEMAND
        if spot:
            break_even = 2 * overhead / 0.7
            if on_demand and (left < break_even * 1.5 or slack < 3 * overhead):
                return ON_DEMAND
            return self.spot_or(view, self._in_outage(left, slack))
        return ON_DEMAND if on_demand else self._in_outage(left, slack)

    def _in_outage(self, left: float, slack: float) -> PolicyChoice:
        ratio, down = slack / max(left, 1e-6), self.ticks_without_spot
        pressing = (
            slack < max(2.0, 4 * self.terms.overhead_seconds)
            or ratio < 0.1
            or (ratio < 0.25 and down > 10)
            or (left < 3.0 and ratio < 0.3)
            or (ratio < 0.2 and down > 5)
            or (ratio < 0.4 and down > 20)
        )
        return ON_DEMAND if pressing else WAIT
