"""Lowtide's own policy in a replay: the view of a tick put into the words of the domain.

Here: that translation. Not here: the choice itself (`app.domain.deadline.placement_choice`).
"""

from __future__ import annotations

from dataclasses import replace

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
from app.domain.deadline.placement_choice import Placement
from app.domain.deadline.policy_state import JobTerms, PlacementAction, PolicyState, RunningOn
from app.domain.throughput.start_up import start_up_left


class Lowtide:
    """One job's placement, told each tick what is seen."""

    def __init__(
        self, briefing: Briefing, *, probes: bool = True, told_start_up: bool = True
    ) -> None:
        """probes: whether it may pay for looks, as the product never does.

        told_start_up: False where nothing is known of the trainer's start-up until it has been seen
        once, as with the first job of its kind.
        """
        self.terms = briefing.terms
        self._known_start_up = briefing.terms.start_up_seconds if told_start_up else 0.0
        self.tick_seconds = briefing.tick_seconds
        self.placement = Placement(
            JobTerms(
                pools=briefing.pools,
                on_demand_price=briefing.on_demand,
                tick_seconds=briefing.tick_seconds,
                restart_seconds=self._restart_seconds,
                horizon_seconds=briefing.terms.deadline_seconds,
                move_seconds=briefing.terms.transfer_seconds,
                move_usd=briefing.terms.egress_usd,
                checkpoint_seconds=briefing.terms.checkpoint_seconds,
            )
        )
        self.placement.learn(briefing.past_up, briefing.past_prices)
        self._tick = -1
        self._told: list[int] = []
        self._probing = False
        self._probes = probes

    def decide(self, view: JobView) -> PolicyChoice:
        """What the domain's choice is for this tick."""
        if view.tick != self._tick:
            self._tick = view.tick
            self._learn_start_up(view)
            self.placement.begin_tick(view.seen)
        else:
            for pool, (before, now) in enumerate(zip(self._told, view.seen, strict=True)):
                if before == PoolState.UNKNOWN and now != PoolState.UNKNOWN:
                    self.placement.reveal(pool, now == PoolState.UP, view.seen, self._probing)
        self._told = list(view.seen)
        state = self._state(view)
        probed = self.placement.probe(state) if self._probes else -1
        self._probing = probed >= 0
        if self._probing:
            return PolicyChoice(PolicyAction.PROBE, probed)
        choice = self.placement.choose(state)
        if choice.verdict is PlacementAction.SPOT:
            return PolicyChoice(PolicyAction.SPOT, choice.pool)
        return ON_DEMAND if choice.verdict is PlacementAction.ON_DEMAND else WAIT

    @property
    def _restart_seconds(self) -> float:
        return self.terms.overhead_seconds - self.terms.start_up_seconds + self._known_start_up

    def _learn_start_up(self, view: JobView) -> None:
        """All of it once work has begun, and before that what of it has passed already."""
        if self._known_start_up < self.terms.start_up_seconds:
            passed = self._passed_start_up(view)
            if view.progress_seconds > 0:
                passed = self.terms.start_up_seconds
            self._known_start_up = max(self._known_start_up, passed)
            known = replace(self.placement.terms, restart_seconds=self._restart_seconds)
            self.placement.terms = known

    def _passed_start_up(self, view: JobView) -> float:
        """How long the trainer of the present machine has been starting."""
        if view.running_on == RunningCapacity.NONE:
            return 0.0
        return max(0.0, self.terms.start_up_seconds - view.overhead_left_seconds)

    def _start_left(self, view: JobView) -> float:
        """As it is told, or as the product expects it of a trainer that it has not seen step."""
        start_up, left = self.terms.start_up_seconds, view.overhead_left_seconds
        if left <= 0 or self._known_start_up >= start_up:
            return left
        before = max(0.0, left - start_up)
        return before + start_up_left(self._known_start_up, self._passed_start_up(view))

    def _state(self, view: JobView) -> PolicyState:
        return PolicyState(
            time_left_seconds=self.terms.deadline_seconds - view.tick * self.tick_seconds,
            work_left_seconds=self.terms.job_seconds - view.progress_seconds,
            running_on=RunningOn(view.running_on),
            pool=view.pool,
            start_left_seconds=self._start_left(view),
            at_risk_seconds=view.at_risk_seconds,
            seen=view.seen,
            prices=view.prices,
        )
