"""Lowtide's own policy in a replay: the view of a tick put into the words of the domain.

Here: that translation. Not here: the choice itself (`app.domain.placement_choice`).
"""

from __future__ import annotations

from dataclasses import replace

from app.domain.placement_choice import Placement
from app.domain.placement_moment import JobTerms, Moment, Running, Verdict
from app.simulation.backtest.job_view import (
    ON_DEMAND,
    WAIT,
    Act,
    Briefing,
    Choice,
    JobView,
    Seen,
)


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
        untold = 0.0 if told_start_up else briefing.terms.start_up_seconds
        self.tick_seconds = briefing.tick_seconds
        self.placement = Placement(
            JobTerms(
                pools=briefing.pools,
                on_demand_price=briefing.on_demand,
                tick_seconds=briefing.tick_seconds,
                restart_seconds=briefing.terms.overhead_seconds - untold,
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

    def decide(self, view: JobView) -> Choice:
        """What the domain's choice is for this tick."""
        if view.tick != self._tick:
            self._tick = view.tick
            self._learn_start_up(view)
            self.placement.begin_tick(view.seen)
        else:
            for pool, (before, now) in enumerate(zip(self._told, view.seen, strict=True)):
                if before == Seen.UNKNOWN and now != Seen.UNKNOWN:
                    self.placement.reveal(pool, now == Seen.UP, view.seen, self._probing)
        self._told = list(view.seen)
        moment = self._moment(view)
        probed = self.placement.probe(moment) if self._probes else -1
        self._probing = probed >= 0
        if self._probing:
            return Choice(Act.PROBE, probed)
        choice = self.placement.choose(moment)
        if choice.verdict is Verdict.SPOT:
            return Choice(Act.SPOT, choice.pool)
        return ON_DEMAND if choice.verdict is Verdict.ON_DEMAND else WAIT

    def _learn_start_up(self, view: JobView) -> None:
        """Once work has begun on a machine it is known how long its trainer took to start."""
        known = self.placement.terms
        if view.progress_seconds > 0 and known.restart_seconds < self.terms.overhead_seconds:
            learned = replace(known, restart_seconds=self.terms.overhead_seconds)
            self.placement.terms = learned

    def _moment(self, view: JobView) -> Moment:
        return Moment(
            time_left_seconds=self.terms.deadline_seconds - view.tick * self.tick_seconds,
            work_left_seconds=self.terms.job_seconds - view.progress_seconds,
            running_on=Running(view.running_on),
            pool=view.pool,
            start_left_seconds=view.overhead_left_seconds,
            at_risk_seconds=view.at_risk_seconds,
            seen=view.seen,
            prices=view.prices,
        )
