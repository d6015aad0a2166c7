"""The placement that the back-test measures, with what a deployment knows of its pools just now.

Lives here: beliefs made from own machines and launches, and the answer in the words of offers
(`live_choice`). Not here: the choice itself (`placement_choice`), reading what it rests on
(`placement.evaluate_markets`), or the last safe moment, which holds whatever is chosen here
(`deadline_policy`). Importing this module loads numpy.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final

from app.domain.availability.availability_observations import DOWN, UP, states
from app.domain.availability.pool_hazards import FORGETTING_HOURS
from app.domain.deadline.cost_to_go import prepare
from app.domain.deadline.live_choice import (
    PAST,
    LiveChoice,
    LivePool,
    LiveState,
    LiveTerms,
    tick_seconds_of,
)
from app.domain.deadline.placement_choice import Placement
from app.domain.deadline.policy_state import (
    JobTerms,
    PlacementAction,
    PolicyDecision,
    PolicyState,
)
from app.domain.market.offer import Pool

TICKS_MAX: Final = 576
TABLES_KEPT: Final = 2
"""Value tables that a process keeps, each 6 to 40 MB: making one takes 0.1 to 0.7 s."""

_USUAL_SHARE_MIN: Final = 0.01

tables = lru_cache(maxsize=TABLES_KEPT)(prepare.__wrapped__)
"""Makes value tables, or hands out those that were asked for last."""


class LivePlacement:
    """Beliefs of one instant; `at_hand`, choices take microseconds."""

    def __init__(self, terms: LiveTerms, pools: Sequence[LivePool], now: datetime) -> None:
        """pools: not empty, each once."""
        self.pools = tuple(one.pool for one in pools)
        tick_seconds = tick_seconds_of(terms.horizon_seconds)
        self._placement = Placement(
            JobTerms(
                pools=tuple(pool.key for pool in self.pools),
                on_demand_price=terms.on_demand_usd,
                tick_seconds=tick_seconds,
                restart_seconds=terms.restart_seconds,
                horizon_seconds=terms.horizon_seconds,
            ),
            tables,
        )
        usual = min(one.usual_usd for one in pools)
        # Free of charge would be no measure of later prices.
        self._placement.usual_price = max(usual, _USUAL_SHARE_MIN * terms.on_demand_usd)
        self._placement.quoted = tuple(one.usual_usd for one in pools)
        self._replay(pools, now, tick_seconds)

    def _replay(self, pools: Sequence[LivePool], now: datetime, tick_seconds: float) -> None:
        """Take in what was seen, tick by tick, from the first observation on."""
        tick = timedelta(seconds=tick_seconds)
        first = min((one.observations.since or now for one in pools), default=now)
        ticks = min(TICKS_MAX, max(1, math.ceil((now - max(first, now - PAST)) / tick)))
        seen = [states(one.observations, now, tick, ticks) for one in pools]
        for one, row in zip(pools, seen, strict=True):
            if one.has_room is not None:
                row[-1] = UP if one.has_room else DOWN
        self.seen = tuple(row[-1] for row in seen)
        hours = tick_seconds / 3_600
        before: tuple[int, ...] = ()
        for place, column in enumerate(zip(*seen, strict=True)):
            self._placement.begin_tick(column)
            weight = math.exp(-(ticks - place) * hours / FORGETTING_HOURS)
            for was, state in zip(before, column, strict=False):
                if was == UP:
                    self._placement.spot_hours += weight * hours
                    lost = state == DOWN and any(other != DOWN for other in column)
                    self._placement.moves += weight * lost
            before = column

    def at_hand(self) -> LivePlacement:
        """The same with its value table, for a choice under a lock.

        To be asked for while nothing is locked: the table may have to be made, be it because more
        kinds of jobs take turns than tables are kept. Not to be kept, as it holds its table.
        """
        held = copy.copy(self)
        held._placement = self._placement.with_table()
        return held

    def choose(self, live: LiveState) -> LiveChoice:
        """The choice of least expected cost. Equal inputs give equal answers."""
        seen, index = list(self.seen), -1
        if live.running_in is not None:
            index = self.pools.index(live.running_in)
            seen[index] = UP
        state = PolicyState(
            time_left_seconds=live.time_left_seconds,
            work_left_seconds=live.work_left_seconds,
            running_on=live.running_on,
            pool=index,
            start_left_seconds=live.start_left_seconds,
            at_risk_seconds=0.0,
            seen=seen,
            prices=live.prices,
        )
        choice = self._placement.choose(state)
        return LiveChoice(
            verdict=choice.verdict,
            pool=self.pools[choice.pool] if choice.verdict is PlacementAction.SPOT else None,
            wait=choice.costs.wait,
            spot=choice.costs.spot,
            on_demand=choice.costs.on_demand,
            order=self._order(choice, live),
            rows=tuple(self._placement.rows(state, choice)),
        )

    def _order(self, choice: PolicyDecision, live: LiveState) -> tuple[Pool, ...]:
        """Pools by worth, that of the choice first."""
        worths = choice.worths
        if not worths:
            return ()
        places = sorted(
            range(len(self.pools)),
            key=lambda place: (place != choice.pool, -worths[place], live.prices[place], place),
        )
        return tuple(self.pools[place] for place in places)
