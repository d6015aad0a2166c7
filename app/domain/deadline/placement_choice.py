"""Wait, run on spot and where, or take on-demand: the choice of least expected cost in time.

Here: the choice of one moment from beliefs, value tables and prices, with the figures behind it.
Not here: hazards (`pool_hazards`), the tables (`cost_to_go`), or getting the machines. Pure:
equal inputs give equal answers.

A pool is worth, per hour, what progress is worth there less its price:

    worth = value of progress x ((L - start) / L - restart / (L + restart)) - price - moving / L

with L the expected remaining life and the value of progress read off the tables. The best pool
then competes with waiting and with on-demand by expected cost. Before all that stands the safety
net: nothing is chosen after which on-demand could no longer meet the deadline; and, of several
pools, those that are dearer than the time left makes needful are passed over (`price_thresholds`).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.domain.availability.hazard_belief import HazardBelief
from app.domain.availability.pool_hazards import (
    FORGETTING_HOURS,
    POOL_LOG_PRIOR,
    SEVERAL_POOLS_LOG_PRIOR,
)
from app.domain.deadline.cost_to_go import CostTable, plan_steps, prepare
from app.domain.deadline.placement_outlook import Outlook
from app.domain.deadline.policy_state import (
    ExpectedCosts,
    JobTerms,
    PlacementAction,
    PolicyDecision,
    PolicyState,
    PoolRow,
    RunningOn,
)
from app.domain.deadline.price_thresholds import PriceThresholds
from app.domain.deadline.probe_budget import PROBE_AFTER_SECONDS, PROBE_SECONDS, ProbeBudget
from app.domain.deadline.spot_history import past_spot_run

MOVE_HYSTERESIS: Final = 0.10
"""A running machine is left for another pool only for a gain above this share of its price."""

LIFE_HOURS_MAX: Final = 48.0
_MOVES_PER_HOUR: Final = (0.0, 0.1, 0.25, 0.5, 0.9, 1.5, 2.5)
_RATIO_STEP: Final = 0.05
_TINY: Final = 1e-6
LAST_STRETCH_SECONDS: Final = 3_600.0
_LIKELY: Final = 0.5
_SEEN_LATELY_SECONDS: Final = 21_600.0
"""How long an observation stands for simulated rides."""


class Placement:
    """What is believed of a job's pools, and the choices that follow.

    `begin_tick` once per tick, `reveal` for what an attempt or a probe found out, `choose`.
    """

    def __init__(self, terms: JobTerms, tables: Callable[..., CostTable] = prepare) -> None:
        """tables: makes or remembers value tables, as `cost_to_go.prepare` does."""
        count = len(terms.pools)
        self._tables = tables
        self.terms = terms
        self.pools = HazardBelief(count, POOL_LOG_PRIOR)
        self.alone = count == 1
        self.any_pool = self.pools if self.alone else HazardBelief(1, SEVERAL_POOLS_LOG_PRIOR)
        self.usual_price = 0.0
        # Moves and hours on spot so far, forgotten as evidence is; a prior of half in two hours.
        self.moves, self.spot_hours = 0.5, 2.0
        self.quoted: Sequence[float] = ()  # the last prices known, $/h per pool
        self._thresholds = PriceThresholds(count)
        self._chosen = -1
        self._probe_budget = ProbeBudget()

    def learn(self, past_up: NDArray[np.bool_], past_prices: NDArray[np.float64]) -> None:
        """Take in what was recorded before the job, [pools, ticks]."""
        tick_seconds = self.terms.tick_seconds
        self.pools.learn(past_up, tick_seconds)
        if not self.alone:
            self.any_pool.learn(np.logical_or.reduce(past_up)[None, :], tick_seconds)
        ridden = past_spot_run(past_up, past_prices)
        if ridden.ticks:
            self.usual_price = ridden.price_sum / ridden.ticks
        self.moves += ridden.moves
        self.spot_hours += ridden.ticks * tick_seconds / 3600
        if not self.alone:
            for states, prices in zip(past_up.T.tolist(), past_prices.T.tolist(), strict=True):
                self._thresholds.watch(states, prices, tick_seconds / 3600)
                self.quoted = prices

    def begin_tick(self, seen: Sequence[int]) -> None:
        """One tick on, with what is seen at its start."""
        if self._chosen >= 0:
            self._go_on(seen)
        states = np.asarray(seen)
        self.pools.observe(states, self.terms.tick_seconds)
        if not self.alone:
            self.any_pool.observe(np.array([_any_up(seen)]), self.terms.tick_seconds)
            self._watch_thresholds()

    def _watch_thresholds(self) -> None:
        """Simulated rides, while what they would have found is known, or not long ago was."""
        pools = self.pools
        lately = (pools.last >= 0) & (pools.seen_ago_seconds <= _SEEN_LATELY_SECONDS)
        if self.quoted and lately.all():
            up = (pools.up_chances() >= _LIKELY).tolist()
            self._thresholds.watch(up, self.quoted, self.terms.tick_seconds / 3600)

    def _go_on(self, seen: Sequence[int]) -> None:
        """One tick on the chosen pool, and whether it was lost while another may be up."""
        hours = self.terms.tick_seconds / 3600
        keep = math.exp(-hours / FORGETTING_HOURS)
        lost = seen[self._chosen] == 0 and any(capacity != 0 for capacity in seen)
        self.moves = self.moves * keep + lost
        self.spot_hours = self.spot_hours * keep + hours

    def reveal(self, pool: int, up: bool, seen: Sequence[int], probed: bool = False) -> None:
        """What an attempt or a probe has shown; `seen` includes it."""
        self.pools.reveal(pool, up, self.terms.tick_seconds)
        together = _any_up(seen)
        if probed and -1 in seen:
            # Single looks find a pool that is up, and never that all are down: no fair sample.
            return
        if not self.alone and together >= 0:
            self.any_pool.reveal(0, bool(together), self.terms.tick_seconds)

    def probe(self, state: PolicyState) -> int:
        """The pool worth a paid look now, -1 for none; asked again after each look.

        Only while on-demand runs: there, no launch attempt tells how long a pool has been up, and
        every hour not moved to a steady one costs the difference in price. Nothing running, an
        attempt tells the same for free.
        """
        if self.alone or state.running_on is not RunningOn.ON_DEMAND:
            return -1
        terms = self.terms
        self._probe_budget.fill(state.time_left_seconds, terms)
        ago = self.pools.seen_ago_seconds
        due = [
            pool
            for pool, seen in enumerate(state.seen)
            if seen < 0 and (ago[pool] >= PROBE_AFTER_SECONDS or self.pools.last[pool] < 0)
        ]
        if not due or self._probe_budget.usd <= 0:
            return -1
        chances = self.pools.up_chances()
        worths = self._worths(state, self._outlook(state, 1).value_of_progress())
        best = max(due, key=lambda pool: (worths[pool] * chances[pool], -pool))
        expected_usd = float(chances[best]) * state.prices[best] * PROBE_SECONDS / 3600
        if worths[best] <= 0 or not self._probe_budget.pay(expected_usd):
            return -1
        return best

    def choose(self, state: PolicyState) -> PolicyDecision:
        """The choice of least expected cost among those that keep the deadline safe."""
        choice = self._finishing(state) or self._choice(state)
        self._chosen, self.quoted = choice.pool, state.prices
        return choice

    def _finishing(self, state: PolicyState) -> PolicyDecision | None:
        """Work that on-demand, where it runs, will have done within the tick is left to it.

        The tables count a small rest as a small share of a step. But a machine that is given up has
        to be started anew for it, and one that goes on costs one tick, however small the rest. Of
        spot the same is true of a longer rest (`_is_last_stretch`).
        """
        if state.running_on is not RunningOn.ON_DEMAND:
            return None
        within = self.terms.tick_seconds - state.start_left_seconds
        if state.work_left_seconds > within + _TINY:
            return None
        return replace(self._choice(state), verdict=PlacementAction.ON_DEMAND, pool=-1)

    def _choice(self, state: PolicyState) -> PolicyDecision:
        possible = [pool for pool, seen in enumerate(state.seen) if seen != 0]
        worthy = self._worthy(state, possible)
        choice = self._evaluate(state, worthy or possible)
        if worthy or not possible or choice.verdict is PlacementAction.WAIT:
            return choice
        # Cheaper pools are to be expected well in time: waiting costs less than what is at hand.
        costs = choice.costs
        least = min(costs.wait, costs.spot, costs.on_demand)
        return PolicyDecision(PlacementAction.WAIT, -1, replace(costs, wait=least), choice.worths)

    def _evaluate(self, state: PolicyState, possible: list[int]) -> PolicyDecision:
        if possible:
            outlook = self._outlook(state, 1)
            worths: tuple[float, ...] = ()
            pool = possible[0]
            if len(possible) > 1:
                worths = tuple(self._worths(state, outlook.value_of_progress()).tolist())
                pool = self._best_pool(state, possible, worths)
            choice = self._decide(state, outlook, pool, worths)
            if choice.verdict is PlacementAction.SPOT or any(state.seen[p] == 1 for p in possible):
                return choice
        # Nothing is known to be up, and what is unknown is not worth trying.
        outlook = self._outlook(state, None if possible else 0)
        return self._decide(state, outlook, -1, ())

    def _worthy(self, state: PolicyState, possible: list[int]) -> list[int]:
        """Those of the pools that are worth their price while there is time to wait."""
        if self.alone or not possible or not self._safe_to_wait(state):
            return possible
        chosen = self._thresholds.worth_waiting_for(
            state.prices,
            state.work_left_seconds / 3600,
            state.time_left_seconds / 3600,
            self.terms.restart_seconds / 3600,
        )
        here = state.pool if state.running_on is RunningOn.SPOT else -1
        return [pool for pool in possible if pool in chosen or pool == here]

    def rows(self, state: PolicyState, choice: PolicyDecision) -> list[PoolRow]:
        """The explanation of a choice, a row per pool."""
        tick = self.terms.tick_seconds
        lives = self.pools.remaining_hours(tick, LIFE_HOURS_MAX)
        hazards = self.pools.hazard_per_hour(tick)
        rows = []
        for index, pool in enumerate(self.terms.pools):
            price, life = state.prices[index], float(lives[index])
            chosen = choice.verdict is PlacementAction.SPOT and choice.pool == index
            rows.append(
                PoolRow(
                    pool=pool,
                    price=price,
                    seen=state.seen[index],
                    hazard_per_hour=float(hazards[index]),
                    remaining_hours=life,
                    chosen=chosen,
                    why=self._why(state, choice, index),
                )
            )
        return rows

    def _why(self, state: PolicyState, choice: PolicyDecision, pool: int) -> str:
        if state.seen[pool] == 0:
            return "has no capacity now"
        if choice.verdict is PlacementAction.WAIT:
            return "waiting for better capacity costs less"
        if choice.verdict is PlacementAction.ON_DEMAND:
            safe = math.isfinite(choice.costs.spot)
            return "on-demand costs less from here" if safe else "the deadline needs on-demand now"
        if pool == choice.pool:
            return "the most progress for its price and expected life"
        if state.running_on is RunningOn.SPOT and state.pool == choice.pool:
            return "not enough better to move for"
        return "less progress for its price and expected life"

    def _outlook(self, state: PolicyState, capacity: int | None) -> Outlook:
        if self.usual_price <= 0:
            # Free of charge would be no measure of later prices.
            self.usual_price = max(min(state.prices), 0.01 * self.terms.on_demand_price)
        return Outlook(self.terms, state, self.table(), self.any_pool, self.usual_price, capacity)

    def table(self) -> CostTable:
        """The value table for this job's prices and restarts."""
        terms = self.terms
        step_seconds, steps = plan_steps(terms.horizon_seconds, terms.restart_seconds)
        ratio = self.usual_price / terms.on_demand_price
        moves = 0.0 if self.alone else self.moves / self.spot_hours
        return self._tables(
            max(_RATIO_STEP, round(ratio / _RATIO_STEP) * _RATIO_STEP),
            round(terms.restart_seconds / step_seconds, 3),
            min(_MOVES_PER_HOUR, key=lambda level: abs(level - moves)),
            step_seconds,
            steps,
        )

    def with_table(self) -> Placement:
        """As it is believed now, with its table made: its choices look for none any more."""
        table = self.table()
        held = copy.copy(self)
        held._tables = lambda *_asked: table
        return held

    def _worths(self, state: PolicyState, value_of_progress: float) -> NDArray[np.float64]:
        """$ per hour that each pool would be worth, were it up."""
        terms = self.terms
        restart = terms.restart_seconds / 3600
        most = state.work_left_seconds / 3600 + restart
        life = np.minimum(self.pools.remaining_hours(terms.tick_seconds, LIFE_HOURS_MAX), most)
        pools = range(len(terms.pools))
        start = np.array([state.start_seconds(terms, pool) for pool in pools]) / 3600
        stays = [state.pool in (-1, pool) for pool in pools]
        moving = np.where(stays, 0.0, terms.move_usd)
        useful = np.maximum(0.0, (life - start) / life) - restart / (life + restart)
        worths: NDArray[np.float64] = (
            value_of_progress * useful - np.asarray(state.prices) - moving / life
        )
        return worths

    def _best_pool(self, state: PolicyState, possible: list[int], worths: Sequence[float]) -> int:
        """The pool of most worth; ties go to the lower price, then to the first."""
        best = max(possible, key=lambda pool: (worths[pool], -state.prices[pool], -pool))
        if state.running_on is RunningOn.SPOT and best != state.pool:
            gain = worths[best] - worths[state.pool]
            if gain < MOVE_HYSTERESIS * state.prices[state.pool]:
                return state.pool
        return best

    def _decide(
        self, state: PolicyState, outlook: Outlook, pool: int, worths: tuple[float, ...]
    ) -> PolicyDecision:
        wait = outlook.wait if self._safe_to_wait(state) else math.inf
        on_demand = outlook.on_demand()
        spot = math.inf
        if pool >= 0:
            if self._safe_on_spot(state, pool):
                spot = self._spot(outlook, pool)
            elif state.running_on is RunningOn.SPOT and self._safe_on_spot(state, state.pool):
                pool, spot = state.pool, self._spot(outlook, state.pool)
        unit = self.terms.on_demand_price
        costs = ExpectedCosts(wait * unit, spot * unit, on_demand * unit)
        if spot <= wait and spot <= on_demand and spot < math.inf:
            return PolicyDecision(PlacementAction.SPOT, pool, costs, worths)
        if wait <= on_demand:
            if spot <= on_demand and self._is_last_stretch(state, pool):
                return PolicyDecision(PlacementAction.SPOT, pool, costs, worths)
            return PolicyDecision(PlacementAction.WAIT, -1, costs, worths)
        return PolicyDecision(PlacementAction.ON_DEMAND, -1, costs, worths)

    def _is_last_stretch(self, state: PolicyState, pool: int) -> bool:
        """So little is left that the tables are too coarse to tell what waiting beside a pool that
        is up would save; measured, it saves nothing.
        """
        little = state.work_left_seconds <= LAST_STRETCH_SECONDS
        return pool >= 0 and state.seen[pool] == 1 and little

    def _spot(self, outlook: Outlook, pool: int) -> float:
        """Its cost; a pool alone is lost with all capacity, which the tables know already."""
        if self.alone:
            return outlook.spot(pool, 0.0)
        hazards = self.pools.hazard_per_hour(self.terms.tick_seconds)
        return outlook.spot(pool, float(hazards[pool]))

    def _safe_to_wait(self, state: PolicyState) -> bool:
        return self._fits(state.work_left_seconds, state.time_left_seconds)

    def _safe_on_spot(self, state: PolicyState, pool: int) -> bool:
        """Whether on-demand still fits if this pool is lost at the end of the tick."""
        tick = self.terms.tick_seconds
        here = state.running_on is RunningOn.SPOT and pool == state.pool
        progress = max(0.0, tick - state.start_seconds(self.terms, pool))
        left = state.work_left_seconds - progress
        if left <= _TINY:
            return True
        if self.terms.checkpoint_seconds > 0:
            at_risk = progress + (state.at_risk_seconds if here else 0.0)
            left += min(at_risk, self.terms.checkpoint_seconds)
        return self._fits(left, state.time_left_seconds)

    def _fits(self, work_seconds: float, time_left_seconds: float) -> bool:
        """Whether a launch of on-demand in the next tick would still be in time, in whole ticks."""
        tick = self.terms.tick_seconds
        needed = math.ceil((work_seconds + self.terms.restart_seconds) / tick - 1e-9)
        return needed <= int(time_left_seconds / tick + 1e-9) - 1


def _any_up(seen: Sequence[int]) -> int:
    """1 when some pool is up, 0 when all are down, -1 when that is not known."""
    if 1 in seen:
        return 1
    return -1 if -1 in seen else 0
