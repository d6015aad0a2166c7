"""One job through one window: preemptions, launches, progress and the bill.

Semantics, those of the "Can't Be Late" harness (NSDI '24): a tick's availability holds for all of
it; a pool that is down at the start of a tick has interrupted whoever ran there; any launch,
restart or move begins with the overhead, without progress; a running machine is billed whole ticks,
the last one too; a job is late that is not done when the last whole tick before its deadline ends.
Here: those rules, and what costs more when asked for (lost work, egress, billing rules). Not here:
who decides (`policy_view`), or what would have been best (`optimum`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from app.backtest.policy_view import (
    JobView,
    Policy,
    PolicyAction,
    PolicyChoice,
    PoolState,
    RunningCapacity,
    Terms,
    ticks_left,
)
from app.backtest.traces import Window
from app.domain.billing.billing_rules import BillingRules
from app.domain.deadline.probe_budget import PROBE_SECONDS

_TINY = 1e-6


class PoolVisibility(StrEnum):
    """What is seen of a pool without running there: everything, or what was tried or paid for."""

    VISIBLE = "visible"
    ATTEMPTS = "attempts"


class PolicyFault(RuntimeError):
    """A policy asked for what cannot be: a programming error."""


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """How one job ended. finish_seconds: None when it did not finish inside the window."""

    cost_usd: float
    finish_seconds: float | None
    missed: bool
    launches: int
    probes: int
    spot_hours: float
    on_demand_hours: float
    lost_work_hours: float


class Replay:
    """The state of one job while it is replayed."""

    def __init__(
        self,
        window: Window,
        terms: Terms,
        information: PoolVisibility,
        billing: BillingRules | None = None,
    ) -> None:
        self.window = window
        self.terms = terms
        self.information = information
        self.billing = billing
        self.tick_hours = window.tick_seconds / 3600
        self.view = JobView(seen=[PoolState.UNKNOWN] * len(window.pools))
        self.cost = self.probe_usd = 0.0  # probes are part of the cost
        self.launches = self.probes = 0
        self.spot_ticks = self.on_demand_ticks = 0
        self.lost_seconds = 0.0
        self.finish_seconds: float | None = None
        self._machine_seconds = 0.0  # of the present machine, and what it has cost
        self._machine_cost = 0.0

    def run(self, policy: Policy) -> JobOutcome:
        """Ask the policy each tick until the work is done or the window ends."""
        view = self.view
        up_by_tick = self.window.up.T.astype(int).tolist()
        prices_by_tick = self.window.prices.T.tolist()
        for tick, (up, prices) in enumerate(zip(up_by_tick, prices_by_tick, strict=True)):
            view.tick, view.prices, view.was_on = tick, prices, view.running_on
            self._interrupt(up)
            self._show(up)
            choice = self._ask(policy, up)
            self._apply(choice)
            if choice.act != PolicyAction.WAIT:
                self._work(prices[choice.pool] if choice.act == PolicyAction.SPOT else None)
                if self.finish_seconds is not None:
                    break
        self._end_machine(interrupted=False)
        return self._outcome()

    def _interrupt(self, up: list[int]) -> None:
        view = self.view
        if view.running_on != RunningCapacity.SPOT or up[view.pool]:
            return
        view.running_on = RunningCapacity.NONE
        view.overhead_left_seconds = 0.0
        view.progress_seconds -= view.at_risk_seconds
        self.lost_seconds += view.at_risk_seconds
        view.at_risk_seconds = 0.0
        self._end_machine(interrupted=True)

    def _show(self, up: list[int]) -> None:
        view = self.view
        if self.information is PoolVisibility.VISIBLE:
            view.seen = list(up)
            return
        view.seen = [PoolState.UNKNOWN] * len(up)
        if view.was_on == RunningCapacity.SPOT:
            view.seen[view.pool] = up[view.pool]

    def _ask(self, policy: Policy, up: list[int]) -> PolicyChoice:
        """The policy's answer, after the failed attempts and probes that led to it."""
        view = self.view
        for _ in range(2 * len(up) + 1):
            choice = policy.decide(view)
            if choice.act in (PolicyAction.WAIT, PolicyAction.ON_DEMAND):
                return choice
            pool = choice.pool
            if choice.act == PolicyAction.SPOT:
                if up[pool]:
                    view.seen[pool] = PoolState.UP
                    return choice
                if view.seen[pool] == PoolState.DOWN:
                    raise PolicyFault(f"asked for {self.window.pools[pool]}, known to be down")
            elif view.seen[pool] != PoolState.UNKNOWN:
                raise PolicyFault(f"probed {self.window.pools[pool]}, whose state is known")
            else:
                self._probe(pool, up[pool])
            view.seen[pool] = up[pool]
        raise PolicyFault("no decision after every pool was tried")

    def _probe(self, pool: int, up: int) -> None:
        """A machine for its minimum billing; one that cannot be had costs nothing."""
        self.probes += 1
        if up:
            paid = self.view.prices[pool] * PROBE_SECONDS / 3600
            self.probe_usd += paid
            self.cost += paid

    def _apply(self, choice: PolicyChoice) -> None:
        view, terms = self.view, self.terms
        machine = RunningCapacity(choice.act)
        same = machine == view.running_on and (
            machine != RunningCapacity.SPOT or choice.pool == view.pool
        )
        if not same:
            self._end_machine(interrupted=False)
            view.at_risk_seconds = 0.0  # whoever leaves of his own will saves first
            view.overhead_left_seconds = 0.0
            if machine != RunningCapacity.NONE:
                self.launches += 1
                view.overhead_left_seconds = terms.overhead_seconds
        if machine == RunningCapacity.SPOT:
            if view.pool not in (-1, choice.pool):
                self.cost += terms.egress_usd
                view.overhead_left_seconds += terms.transfer_seconds
            view.pool = choice.pool
        view.running_on = machine

    def _work(self, spot_price: float | None) -> None:
        """One tick of the machine: its bill and its progress."""
        view, terms, tick_seconds = self.view, self.terms, self.window.tick_seconds
        if spot_price is None:
            price = self.window.on_demand
            self.on_demand_ticks += 1
        else:
            price = spot_price
            self.spot_ticks += 1
        self.cost += price * self.tick_hours
        self._machine_cost += price * self.tick_hours
        self._machine_seconds += tick_seconds
        starting = min(view.overhead_left_seconds, float(tick_seconds))
        work = tick_seconds - starting
        view.overhead_left_seconds -= starting
        if view.overhead_left_seconds < 1e-3:
            view.overhead_left_seconds = 0.0
        left = terms.job_seconds - view.progress_seconds
        if work >= left - _TINY:
            self.finish_seconds = view.tick * tick_seconds + starting + left
            view.progress_seconds = terms.job_seconds
            return
        view.progress_seconds += work
        if terms.checkpoint_seconds > 0 and spot_price is not None:
            view.at_risk_seconds = (view.at_risk_seconds + work) % terms.checkpoint_seconds

    def _end_machine(self, interrupted: bool) -> None:
        """The waiver and the minimum of the billing rules, where some were asked for."""
        rules, seconds = self.billing, self._machine_seconds
        if rules is not None and seconds > 0:
            if interrupted and seconds < rules.free_if_interrupted_within_seconds:
                self.cost -= self._machine_cost
            elif seconds < rules.minimum_seconds:
                self.cost += self._machine_cost * (rules.minimum_seconds / seconds - 1)
        self._machine_seconds = self._machine_cost = 0.0

    def _outcome(self) -> JobOutcome:
        finish, tick_seconds = self.finish_seconds, self.window.tick_seconds
        in_time = ticks_left(self.terms, 0, tick_seconds) * tick_seconds
        return JobOutcome(
            cost_usd=self.cost,
            finish_seconds=finish,
            missed=finish is None or finish > in_time + 1e-3,
            launches=self.launches,
            probes=self.probes,
            spot_hours=self.spot_ticks * self.tick_hours,
            on_demand_hours=self.on_demand_ticks * self.tick_hours,
            lost_work_hours=self.lost_seconds / 3600,
        )
