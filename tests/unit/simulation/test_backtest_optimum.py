"""The optimum: what the best of all plans costs, on terms that are no whole ticks, too."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest

from app.backtest.optimum import optimum_by_tick
from app.backtest.policy_view import (
    ON_DEMAND,
    WAIT,
    Briefing,
    JobView,
    PolicyAction,
    PolicyChoice,
    Terms,
    ticks_left,
)
from app.backtest.replay import JobOutcome, PoolVisibility, Replay
from app.backtest.run_cells import POLICIES
from app.backtest.traces import Window

HOUR = 3600.0
FULL_PRICE = 4.0


def _window(seed: int, pools: int, ticks: int, tick_seconds: int) -> Window:
    dice = np.random.default_rng(seed)
    up = np.logical_xor.accumulate(dice.random((pools, ticks)) < 0.3, axis=1)
    prices = dice.uniform(0.5, 3.0, (pools, ticks))
    names = tuple("abc"[:pools])
    return Window(names, tick_seconds, up, prices, up[:, :0], prices[:, :0], FULL_PRICE)


def _least(window: Window, terms: Terms) -> float:
    """$ for the job in time."""
    by_tick = optimum_by_tick(
        window.up,
        window.prices,
        window.on_demand,
        window.tick_seconds,
        terms.overhead_seconds,
        terms.job_seconds,
    )
    return float(by_tick[ticks_left(terms, 0, window.tick_seconds)])


class Planned:
    """One answer per tick."""

    def __init__(self, plan: tuple[PolicyChoice, ...]) -> None:
        self.plan = plan

    def decide(self, view: JobView) -> PolicyChoice:
        return self.plan[view.tick]


def _every_plan(window: Window, terms: Terms) -> Iterator[JobOutcome]:
    options = [
        [
            WAIT,
            ON_DEMAND,
            *(PolicyChoice(PolicyAction.SPOT, int(pool)) for pool in np.flatnonzero(column)),
        ]
        for column in window.up.T
    ]
    for plan in product(*options):
        yield Replay(window, terms, PoolVisibility.VISIBLE).run(Planned(plan))


@pytest.mark.parametrize(
    ("job", "overhead", "deadline"),
    [
        (1800.0, 0.0, 3600.0),
        (1500.0, 0.0, 3600.0),  # the third tick is not needed whole, and paid whole
        (1470.0, 200.0, 3500.0),  # nothing is a whole tick
        (1330.0, 450.0, 3590.0),
        (900.0, 900.0, 3000.0),  # a start that takes more than a tick
        (1.0, 0.0, 1300.0),
    ],
)
def test_no_plan_costs_less_and_one_costs_as_much(job: float, overhead: float, deadline: float):
    for seed in range(4):
        window, terms = _window(seed, 2, 6, 600), Terms(job, deadline, overhead)
        in_time = [end.cost_usd for end in _every_plan(window, terms) if not end.missed]
        assert _least(window, terms) == pytest.approx(min(in_time))


@pytest.mark.parametrize("information", list(PoolVisibility))
@pytest.mark.parametrize(
    ("tick_seconds", "job", "overhead", "slack"),
    [
        (195, 2.03 * HOUR, 437.0, 1.31),
        pytest.param(300, 3.7 * HOUR, 61.5, 1.17, marks=pytest.mark.full),
        (600, 5.21 * HOUR, 777.7, 1.4),
        (600, 4.0 * HOUR, 1000 / 3, 1.12),
    ],
)
def test_no_policy_costs_less_on_terms_that_are_no_whole_ticks(
    tick_seconds: int, job: float, overhead: float, slack: float, information: PoolVisibility
):
    terms = Terms(job, slack * job, overhead)
    ticks = int(terms.deadline_seconds / tick_seconds) + 3
    for seed in range(2):
        window = _window(seed, 3, ticks, tick_seconds)
        least = _least(window, terms)
        assert least < np.inf
        briefing = Briefing(
            window.pools, tick_seconds, FULL_PRICE, terms, window.past_up, window.past_prices
        )
        for name, maker in POLICIES.items():
            outcome = Replay(window, terms, information).run(maker(briefing))
            assert outcome.cost_usd >= least - 1e-9, name
            assert not outcome.missed or name == "evolved", name
