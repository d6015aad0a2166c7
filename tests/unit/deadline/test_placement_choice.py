"""Lowtide's own choice: safe, blind to the future, steady, and explained."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from app.backtest.lowtide import Lowtide
from app.backtest.optimum import optimum_by_tick
from app.backtest.policy_view import (
    Briefing,
    JobView,
    Policy,
    PolicyAction,
    PolicyChoice,
    PolicyMaker,
    Terms,
)
from app.backtest.replay import JobOutcome, PoolVisibility, Replay
from app.backtest.run_cells import POLICIES
from app.backtest.traces import Window
from app.domain.deadline.placement_choice import Placement
from app.domain.deadline.policy_state import JobTerms, PlacementAction, PolicyState, RunningOn
from app.domain.deadline.spot_history import past_spot_run

HOUR = 3600.0
TICK = 600
TICKS = 90
PAST = 144
# What the product knows; who sees every pool is the comparison.
INFORMATION = [
    pytest.param(one, marks=pytest.mark.full) if one is PoolVisibility.VISIBLE else one
    for one in PoolVisibility
]


def _capacity(seed: int, pools: int, ticks: int, change: float = 0.12) -> NDArray[np.bool_]:
    dice = np.random.default_rng(seed)
    flips: NDArray[np.bool_] = dice.random((pools, ticks)) < change
    return np.logical_xor.accumulate(flips, axis=1)


def _window(seed: int, pools: int = 3, past: int = PAST) -> Window:
    up = _capacity(seed, pools, PAST + TICKS)
    prices = np.tile(np.linspace(1.0, 1.4, pools)[:, None], (1, PAST + TICKS))
    return Window(
        pools=tuple("abcdefgh"[:pools]),
        tick_seconds=TICK,
        up=up[:, PAST:],
        prices=prices[:, PAST:],
        past_up=up[:, PAST - past : PAST],
        past_prices=prices[:, PAST - past : PAST],
        on_demand=4.0,
    )


class Recorded:
    """A policy, with all that it was shown and answered."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.answers: list[tuple[JobView, PolicyChoice]] = []

    def decide(self, view: JobView) -> PolicyChoice:
        shown = replace(view, seen=list(view.seen), prices=list(view.prices))
        choice = self.policy.decide(view)
        self.answers.append((shown, choice))
        return choice


def _replay(
    window: Window,
    terms: Terms,
    information: PoolVisibility = PoolVisibility.VISIBLE,
    maker: PolicyMaker = Lowtide,
) -> tuple[JobOutcome, list[tuple[JobView, PolicyChoice]]]:
    briefing = Briefing(
        window.pools, TICK, window.on_demand, terms, window.past_up, window.past_prices
    )
    policy = Recorded(maker(briefing))
    return Replay(window, terms, information).run(policy), policy.answers


def _terms(slack: float = 1.3, **more: float) -> Terms:
    return Terms(8 * HOUR, slack * 8 * HOUR, 720.0, **more)


@pytest.mark.parametrize("information", INFORMATION)
@pytest.mark.parametrize("pools", [1, pytest.param(3, marks=pytest.mark.full)])
def test_the_deadline_is_kept_and_the_optimum_not_beaten(pools: int, information: PoolVisibility):
    for seed in range(8):
        window = _window(seed, pools, past=PAST if seed % 2 else 0)
        for slack in (1.1, 1.3, 1.8):
            terms = _terms(slack)
            outcome, _ = _replay(window, terms, information)
            best = optimum_by_tick(window.up, window.prices, 4.0, TICK, 720.0, terms.job_seconds)
            assert not outcome.missed
            assert outcome.cost_usd >= best[int(terms.deadline_seconds / TICK)] - 1e-9


@pytest.mark.parametrize("transfer_seconds", [300.0, 3000.0])
def test_the_deadline_is_kept_when_interruptions_lose_work_and_moves_take_time(
    transfer_seconds: float,
):
    for seed in range(6):
        terms = _terms(
            1.25, checkpoint_seconds=1800.0, transfer_seconds=transfer_seconds, egress_usd=0.1
        )
        outcome, _ = _replay(_window(seed), terms)
        assert not outcome.missed


def _other_future(window: Window, cut: int, dice: np.random.Generator) -> Window:
    """Equal until tick `cut`; from then on every pool is where it was not, at other prices."""
    up, prices = window.up.copy(), window.prices.copy()
    up[:, cut] = ~up[:, cut]
    up[:, cut + 1 :] = dice.permuted(up[:, cut + 1 :], axis=1)
    prices[:, cut:] *= dice.uniform(1.5, 3.0, prices[:, cut:].shape)
    return replace(window, up=up, prices=prices)


@pytest.mark.parametrize("information", INFORMATION)
@pytest.mark.parametrize("name", list(POLICIES))
def test_nothing_of_the_future_is_seen(name: str, information: PoolVisibility):
    """Neither shown nor acted upon: capacity and prices of the very next tick are the future."""
    for seed in (3, 4, 5):
        dice = np.random.default_rng(seed)
        steady = _window(seed)
        window = replace(steady, prices=steady.prices * dice.uniform(0.5, 2.0, (3, TICKS)))
        _, answers = _replay(window, _terms(), information, POLICIES[name])
        last = answers[-1][0].tick
        for cut in (1, 2, 7, 18, 30, last):
            other = _other_future(window, cut, dice)
            _, again = _replay(other, _terms(), information, POLICIES[name])
            before = [one for one in answers if one[0].tick < cut]
            assert [one for one in again if one[0].tick < cut] == before
            assert len(before) >= cut


def test_equal_inputs_give_equal_answers():
    first, second = (_replay(_window(4), _terms(), PoolVisibility.ATTEMPTS) for _ in range(2))
    assert first == second


def _placement(pools: int = 4, seed: int = 7, **more: float) -> Placement:
    window = _window(seed, pools)
    placement = Placement(
        JobTerms(
            pools=window.pools,
            on_demand_price=4.0,
            tick_seconds=TICK,
            horizon_seconds=10 * HOUR,
            **{"restart_seconds": 720.0, **more},
        )
    )
    placement.learn(window.past_up, window.past_prices)
    placement.begin_tick([1] * pools)
    return placement


def _moment(
    prices: list[float], pool: int = -1, left: float = 8.0, time: float = 10.0
) -> PolicyState:
    return PolicyState(
        time_left_seconds=time * HOUR,
        work_left_seconds=left * HOUR,
        running_on=RunningOn.NOTHING if pool < 0 else RunningOn.SPOT,
        pool=pool,
        start_left_seconds=0.0,
        at_risk_seconds=0.0,
        seen=[1] * len(prices),
        prices=prices,
    )


@settings(max_examples=60, deadline=None)
@given(
    prices=st.lists(st.floats(0.2, 4.0), min_size=4, max_size=4),
    raised=st.integers(0, 3),
    by=st.floats(1.01, 3.0),
    pool=st.integers(-1, 3),
    left=st.floats(0.5, 9.0),
)
def test_raising_one_price_never_makes_that_pool_win(
    prices: list[float], raised: int, by: float, pool: int, left: float
):
    placement = _placement()
    before = placement.choose(_moment(prices, pool, left))
    higher = [price * by if index == raised else price for index, price in enumerate(prices)]
    after = placement.choose(_moment(higher, pool, left))
    if (before.verdict, before.pool) != (PlacementAction.SPOT, raised):
        assert (after.verdict, after.pool) != (PlacementAction.SPOT, raised)


def test_without_time_to_spare_it_is_on_demand_and_with_much_of_it_spot():
    placement = _placement()
    prices = [1.0, 1.1, 1.2, 1.3]
    assert placement.choose(_moment(prices, left=9.7)).verdict is PlacementAction.ON_DEMAND
    relaxed = placement.choose(_moment(prices, left=4.0))
    assert relaxed.verdict is PlacementAction.SPOT
    assert relaxed.costs.spot < relaxed.costs.on_demand < math.inf
    # A machine that runs is kept while another is only a little cheaper.
    assert placement.choose(_moment([1.0, 1.1, 1.2, 1.02], pool=3, left=4.0)).pool in (0, 3)


def test_a_move_is_worth_less_for_the_time_and_the_money_it_takes():
    """A pool of half the price is moved to, and not where that would cost what it saves."""
    moment = _moment([1.0, 2.0, 3.0, 3.0], pool=1, left=6.0, time=9.5)
    assert _placement().choose(moment).pool == 0
    for more in ({"move_seconds": 5 * HOUR}, {"move_usd": 20.0}):
        assert _placement(4, 7, **more).choose(moment).pool == 1, more


@pytest.mark.parametrize("more", [{"transfer_seconds": 5 * HOUR}, {"egress_usd": 20.0}])
def test_a_replayed_job_moves_to_where_it_is_cheaper_unless_the_move_is_dear(
    more: dict[str, float],
):
    prices = np.full((2, TICKS), 2.0)
    prices[0, :15], prices[1, 15:] = 1.0, 1.0
    up = np.ones((2, TICKS), bool)
    window = Window(("a", "b"), TICK, up, prices, up[:, :60], prices[:, :60], 4.0)
    moving, staying = (_replay(window, terms)[0] for terms in (_terms(1.8), _terms(1.8, **more)))
    assert (moving.launches, staying.launches) == (2, 1)


def test_what_a_move_takes_is_no_time_for_work():
    """Eight minutes of work in this tick, or none: without them the next one is too late."""
    moment = replace(
        _moment([1.0] * 4, pool=0, left=11 / 6, time=2.0),
        running_on=RunningOn.NOTHING,
        seen=[0, 1, 1, 1],
    )
    assert _placement(restart_seconds=120.0).choose(moment).verdict is PlacementAction.SPOT
    moved = _placement(restart_seconds=120.0, move_seconds=480.0).choose(moment)
    assert (moved.verdict, moved.costs.spot) == (PlacementAction.ON_DEMAND, math.inf)


def test_an_explanation_has_a_row_for_every_pool():
    placement = _placement()
    moment = replace(_moment([1.0, 1.1, 1.2, 1.3], left=4.0), seen=[1, 1, 0, 1])
    choice = placement.choose(moment)
    rows = placement.rows(moment, choice)
    assert [row.pool for row in rows] == ["a", "b", "c", "d"]
    assert [row.pool for row in rows if row.chosen] == ["abcd"[choice.pool]]
    assert rows[2].why == "has no capacity now"
    for row in rows:
        assert row.hazard_per_hour > 0
        assert row.why


def test_a_pool_that_keeps_being_lost_is_believed_to_be_short_lived():
    steady, shaky = np.ones((1, PAST), bool), np.tile([[True, False]], (1, PAST // 2))
    up = np.concatenate([steady, shaky])
    placement = Placement(JobTerms(("a", "b"), 4.0, TICK, 720.0, 10 * HOUR))
    placement.learn(up, np.ones((2, PAST)))
    placement.begin_tick([1, 1])
    steady_hours, shaky_hours = placement.pools.remaining_hours(TICK, 48.0)
    assert steady_hours > 10 * shaky_hours


def test_learning_a_past_at_once_is_learning_it_tick_by_tick():
    past = _capacity(11, 2, 50)
    terms = JobTerms(("a", "b"), 4.0, TICK, 720.0, 10 * HOUR)
    at_once, by_tick = Placement(terms), Placement(terms)
    at_once.pools.learn(past, TICK)
    by_tick.pools.learn(past[:, :1], TICK)
    for column in past.T[1:]:
        by_tick.pools.observe(column.astype(int), TICK)
    assert np.allclose(at_once.pools.weights(), by_tick.pools.weights())
    assert np.array_equal(at_once.pools.age_seconds, by_tick.pools.age_seconds)


def test_a_ride_counts_moves_while_something_is_up():
    up = np.array([[1, 1, 0, 0, 1], [0, 1, 1, 0, 0]], bool)
    found = past_spot_run(up, np.array([[1.0] * 5, [2.0] * 5]))
    assert (found.ticks, found.price_sum, found.moves) == (4, 1 + 1 + 2 + 1, 1)


def test_an_attempt_that_fails_is_followed_by_another_answer():
    window = _window(5)
    _, answers = _replay(window, _terms(), PoolVisibility.ATTEMPTS)
    tried = [
        (view.tick, choice.pool) for view, choice in answers if choice.act == PolicyAction.SPOT
    ]
    assert len(set(tried)) == len(tried)
    assert len(tried) > len({tick for tick, _ in tried})


def test_on_demand_that_runs_finishes_a_rest_that_fits_into_the_tick():
    """However much time is left: to give it up would mean to start once more for a minute."""
    rest = replace(_moment([1.0], left=1 / 60, time=9.0), running_on=RunningOn.ON_DEMAND)
    assert _placement(1).choose(rest).verdict is PlacementAction.ON_DEMAND


def test_the_last_stretch_is_run_on_a_pool_that_is_up():
    waited = 0
    for seed in range(12):
        for left in (0.1, 0.3, 0.6, 0.9):
            choice = _placement(1, seed).choose(_moment([1.0], left=left, time=6.0))
            waited += choice.costs.wait < choice.costs.spot
            assert choice.verdict is PlacementAction.SPOT, (seed, left)
    assert waited > 0, "by the tables alone it would never have waited, and this shows nothing"
