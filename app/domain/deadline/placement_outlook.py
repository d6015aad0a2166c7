"""Expected costs of waiting, of a pool and of on-demand in one moment, over the believed models.

Here: reading the value tables with a belief. Not here: the tables (`cost_to_go`), beliefs
(`pool_hazards`), or which cost wins (`placement_choice`).
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from app.domain.availability.hazard_belief import HazardBelief
from app.domain.availability.pool_hazards import PHASES
from app.domain.deadline.cost_to_go import IDLE, ON_DEMAND, SPOT, CostTable
from app.domain.deadline.policy_state import JobTerms, PolicyState, RunningOn

_WEIGHT_MIN: Final = 1e-3


class Outlook:
    """Expected costs of one moment, in on-demand hours, averaged over the believed models."""

    def __init__(
        self,
        terms: JobTerms,
        state: PolicyState,
        table: CostTable,
        belief: HazardBelief,
        usual_price: float,
        capacity: int | None,
    ) -> None:
        """capacity: were all capacity up (1) or down (0) now; None: as it is believed to be."""
        self.terms, self.state, self.table, self.usual_price = terms, state, table, usual_price
        step = table.step_seconds
        self.step_hours = step / 3600
        now = belief.chances(0, capacity, terms.tick_seconds)  # [models, phases]
        now[now.sum(axis=1) < _WEIGHT_MIN] = 0.0
        now = (now / now.sum()).astype(np.float32)
        self.chances = np.matmul(now[:, None, :], table.transitions)[:, 0]  # of the next step
        self.steps_left = state.time_left_seconds / step - 1
        self.slack = (state.time_left_seconds - state.work_left_seconds) / step
        self.wait = self._expected(self.slack - 1, IDLE)

    def value_of_progress(self) -> float:
        """$ that one hour of work done saves."""
        saved = self.wait - self._expected(self.slack, IDLE)
        return saved / self.step_hours * self.terms.on_demand_price

    def on_demand(self) -> float:
        """Keep or launch on-demand."""
        state, terms = self.state, self.terms
        keeps = state.running_on is RunningOn.ON_DEMAND
        start = state.start_left_seconds if keeps else terms.restart_seconds
        slack = self.slack - start / self.table.step_seconds
        return self.step_hours + self._expected(slack, ON_DEMAND)

    def spot(self, pool: int, hazard_per_hour: float) -> float:
        """Keep or launch this pool, which at this hazard is lost while others go on."""
        state, terms = self.state, self.terms
        to_go = state.start_seconds(terms, pool) / self.table.step_seconds
        if to_go <= 1 + 1e-9:
            slack, states = self.slack - to_go, SPOT
        else:
            slack, states = self.slack - 1, self.table.start_states(to_go)
        relative = state.prices[pool] / self.usual_price
        cost = relative * self.table.price_ratio * self.step_hours
        if state.pool not in (-1, pool):
            cost += terms.move_usd / terms.on_demand_price
        kept = self._on_spot(slack, states)
        # The tables know of the end of all capacity; what its own end adds is a move.
        own = 1 - math.exp(-hazard_per_hour * self.step_hours)
        lost = max(0.0, own - float(self.chances[:, PHASES:].sum()))
        if lost == 0:
            return cost + kept
        return cost + (1 - lost) * kept + lost * self._on_spot(slack, slice(0, PHASES))

    def _expected(self, slack: float, states: slice) -> float:
        return self.table.expected(self.steps_left, slack, states, self.chances)

    def _on_spot(self, slack: float, states: slice) -> float:
        """While capacity lasts in `states`, and idle once it is gone."""
        up, down = slice(0, PHASES), slice(PHASES, 2 * PHASES)
        stays = self.table.expected(self.steps_left, slack, states, self.chances[:, up])
        return stays + self.table.expected(self.steps_left, slack, down, self.chances[:, down])
