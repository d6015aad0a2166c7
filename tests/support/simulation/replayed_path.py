"""The machines of a replayed job, from what its policy wanted in each tick, as a ledger sees them.

Not here: the replay (`app.backtest`), or the arithmetic of bills (`billing.billing`).
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from app.backtest.policy_view import (
    Briefing,
    JobView,
    PolicyAction,
    PolicyChoice,
    PolicyMaker,
    Terms,
)
from app.backtest.traces import Window
from app.domain.billing.machine_facts import AssignmentSpan, MachineFacts, TimeSource
from app.domain.lifecycle.instance import EndedBy
from app.domain.market.offer import Market
from app.domain.market.price_book import PriceSegment


class Machine(NamedTuple):
    """One machine of a path: pool -1 is on-demand; it ran in [begin, end) ticks."""

    pool: int
    begin: int
    end: int
    interrupted: bool


class Recorded:
    """A policy, and what it wanted in the end of each tick."""

    def __init__(self, maker: PolicyMaker, window: Window, terms: Terms) -> None:
        past = (window.past_up, window.past_prices)
        briefing = Briefing(window.pools, window.tick_seconds, window.on_demand, terms, *past)
        self.policy = maker(briefing)
        self.wanted: dict[int, PolicyChoice] = {}

    def decide(self, view: JobView) -> PolicyChoice:
        """The policy's answer; the last one of a tick is what it wanted."""
        choice = self.policy.decide(view)
        self.wanted[view.tick] = choice
        return choice

    def machines(self, up: NDArray[np.bool_]) -> list[Machine]:
        """The machines that followed, in order."""
        found: list[Machine] = []
        running: tuple[int, int] | None = None  # pool and first tick
        for tick, choice in sorted(self.wanted.items()):
            lost = running is not None and running[0] >= 0 and not up[running[0], tick]
            pool = {PolicyAction.SPOT: choice.pool, PolicyAction.ON_DEMAND: -1}.get(choice.act)
            if running is not None and (lost or pool != running[0]):
                found.append(Machine(*running, tick, lost))
                running = None
            if running is None and pool is not None:
                running = (pool, tick)
        if running is not None:
            found.append(Machine(*running, max(self.wanted) + 1, False))
        return found


START = datetime(2026, 3, 1, 11, 50, tzinfo=UTC)
"""When a replayed window is taken to begin."""


def facts_of(machine: Machine, number: int, window: Window) -> MachineFacts:
    """What a ledger would know of the machine; number: told apart by."""
    began, ended = (_at(tick, window) for tick in (machine.begin, machine.end))
    return MachineFacts(
        instance_id=UUID(int=number),
        market=Market.ON_DEMAND if machine.pool < 0 else Market.SPOT,
        started_at=began,
        started_source=TimeSource.LAUNCH_TIME,
        ended_at=ended,
        ended_by=EndedBy.CLOUD_INTERRUPTION if machine.interrupted else EndedBy.US,
        assignments=(AssignmentSpan(UUID(int=10_000 + number), UUID(int=5), None, began, ended),),
    )


def prices_of(machine: Machine, window: Window) -> list[PriceSegment]:
    """What its time costs, tick by tick."""
    found = []
    for tick in range(machine.begin, machine.end):
        at = _at(tick, window)
        price = window.on_demand if machine.pool < 0 else float(window.prices[machine.pool, tick])
        until = _at(tick + 1, window)
        found.append(PriceSegment(at, until, round(price * 1e6), "trace", at))
    return found


def _at(tick: int, window: Window) -> datetime:
    return START + timedelta(seconds=window.tick_seconds * tick)
