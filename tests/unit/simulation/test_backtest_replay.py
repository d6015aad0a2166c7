"""The replay of one job: exact costs, what a policy sees, and what more can be charged."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from app.backtest.baselines import (
    CheapestUniformProgress,
    Evolved,
    Greedy,
    OnDemandOnly,
    UniformProgress,
    region_of,
)
from app.backtest.optimum import optimum_by_tick
from app.backtest.policy_view import (
    ON_DEMAND,
    WAIT,
    Briefing,
    JobView,
    PolicyAction,
    PolicyChoice,
    PolicyMaker,
    PoolState,
    Terms,
)
from app.backtest.replay import JobOutcome, PolicyFault, PoolVisibility, Replay
from app.backtest.run_cells import on_demand_cost
from app.backtest.skynomad import SkyNomad
from app.backtest.traces import Window, cut_window, read_trace
from app.domain.billing.billing_rules import EC2_RULES, GCE_RULES

TRACES = Path(__file__).parents[3] / "app/adapters/providers/local/traces"
TICK = 600
HOUR = 3600.0


def _window(*rows: str, prices: tuple[float, ...] = (1.0, 2.0)) -> Window:
    """Pools whose ticks are up where a row has '#'."""
    up = np.array([[mark == "#" for mark in row] for row in rows])
    return Window(
        pools=tuple("abc"[: len(rows)]),
        tick_seconds=TICK,
        up=up,
        prices=np.array([[price] * up.shape[1] for price in prices[: len(rows)]]),
        past_up=up[:, :0],
        past_prices=np.zeros((len(rows), 0)),
        on_demand=6.0,
    )


def _briefing(window: Window, terms: Terms) -> Briefing:
    return Briefing(
        window.pools,
        window.tick_seconds,
        window.on_demand,
        terms,
        window.past_up,
        window.past_prices,
    )


class Scripted:
    """Answers from a list, one per call; keeps what it was shown."""

    def __init__(self, *choices: PolicyChoice) -> None:
        self.choices = list(choices)
        self.shown: list[list[int]] = []

    def decide(self, view: JobView) -> PolicyChoice:
        self.shown.append(list(view.seen))
        return self.choices.pop(0) if len(self.choices) > 1 else self.choices[0]


def _run(window: Window, terms: Terms, policy: Scripted, **more: object) -> JobOutcome:
    information = more.pop("information", PoolVisibility.VISIBLE)
    assert isinstance(information, PoolVisibility)
    return Replay(window, terms, information, **more).run(policy)  # type: ignore[arg-type]


# By an independent simulator of the same semantics: greedy, Uniform Progress, evolved; optimum.
_V100 = ("us-east-1c_v100_1", "us-east-2b_v100_1", "us-west-2a_v100_1")


@pytest.mark.parametrize(
    ("file", "pools", "gang", "start", "slack", "overhead", "costs", "least"),
    [
        (
            "gcp_2025_h100_13z", ("us-west1-a",), 1, 0, 1.2, 0.2,
            (1399.1417, 1399.1417, 1399.1417), 1395.9785,
        ),
        (
            "gcp_2025_h100_13z", ("us-east4-a",), 16, 300, 1.08, 0.5,
            (3735.0933, 3832.7493, 3781.5843), 3460.5534,
        ),
        (
            "aws_2023_v100_9z", _V100, 1, 4000, 1.5, 0.2,
            (46.1185, 57.9862, 50.9915), 45.2072,
        ),
    ],
)  # fmt: skip
def test_published_policies_cost_what_they_should(
    file: str,
    pools: tuple[str, ...],
    gang: int,
    start: int,
    slack: float,
    overhead: float,
    costs: tuple[float, ...],
    least: float,
):
    trace = read_trace(TRACES / f"{file}.npz")
    ticks = math.ceil(slack * 48 * HOUR / trace.gap_seconds) + 2
    window = cut_window(trace, pools, gang, start, ticks, 0)
    terms = Terms(48 * HOUR, slack * 48 * HOUR, overhead * HOUR)
    briefing = _briefing(window, terms)
    makers: tuple[PolicyMaker, ...] = (Greedy, UniformProgress, Evolved)
    for maker, cost in zip(makers, costs, strict=True):
        outcome = Replay(window, terms, PoolVisibility.VISIBLE).run(maker(briefing))
        assert outcome.cost_usd == pytest.approx(cost, abs=1e-3)
        assert not outcome.missed
    optimum = optimum_by_tick(
        window.up, window.prices, window.on_demand, window.tick_seconds, overhead * HOUR, 48 * HOUR
    )
    assert optimum[int(slack * 48 * HOUR / window.tick_seconds)] == pytest.approx(least, abs=1e-3)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("information", list(PoolVisibility))
def test_nothing_costs_less_than_the_optimum_and_nothing_is_late(
    seed: int, information: PoolVisibility
):
    dice = np.random.default_rng(seed)
    flips = dice.random((3, 90)) < 0.15
    up = np.logical_xor.accumulate(flips, axis=1)
    rows = ["".join("#" if state else "." for state in row) for row in up]
    window = _window(*rows, prices=(1.0, 1.5, 2.0))
    terms = Terms(8 * HOUR, 12 * HOUR, dice.choice([300.0, 600.0, 900.0]))
    optimum = optimum_by_tick(
        window.up, window.prices, 6.0, TICK, terms.overhead_seconds, terms.job_seconds
    )[72]
    makers: tuple[PolicyMaker, ...] = (
        OnDemandOnly, Greedy, UniformProgress, CheapestUniformProgress, SkyNomad,
    )  # fmt: skip
    for maker in makers:
        policy = maker(_briefing(window, terms))
        outcome = Replay(window, terms, information).run(policy)
        assert outcome.cost_usd >= optimum - 1e-9
        assert not outcome.missed
    assert on_demand_cost(window, terms) >= optimum


@pytest.mark.parametrize(
    ("maker", "second"), [(UniformProgress, "us-east-1a_v100_1"), (CheapestUniformProgress, "b")]
)
def test_up_s_goes_to_another_region_after_an_interruption(maker: PolicyMaker, second: str):
    """Not only in the tick in which it is lost, when nobody would be found there anyway."""
    window = replace(
        _window("##..####", "##..####", "##..####", prices=(1.0, 1.1, 2.0)),
        pools=("us-east-1a_v100_1", "us-east-1b_v100_1", "b"),
    )
    terms = Terms(4 * TICK, 8 * TICK, 0.0)
    replay = Replay(window, terms, PoolVisibility.VISIBLE)
    replay.run(maker(_briefing(window, terms)))
    assert window.pools[replay.view.pool] == second


@pytest.mark.parametrize(
    ("pool", "region"),
    [
        ("us-east-1c_v100_1", "us-east-1"),
        ("us-west1-b", "us-west1"),
        ("europe-west4-a_h100", "europe-west4"),
        ("somewhere", "somewhere"),
    ],
)
def test_a_pool_names_its_region(pool: str, region: str):
    assert region_of(pool) == region


def test_a_restart_costs_time_and_the_last_tick_is_billed_whole():
    # Two ticks of work, half a tick to start; lost in the third tick, started again.
    window = _window("##.######")
    terms = Terms(2 * TICK, 9 * TICK, TICK / 2)
    spot = PolicyChoice(PolicyAction.SPOT, 0)
    outcome = _run(window, terms, Scripted(spot, spot, WAIT, spot))
    # 0.5 + 1 done in two ticks; a wait; then half a tick of start and the last half.
    assert outcome.finish_seconds == 4 * TICK
    assert outcome.cost_usd == pytest.approx(3 * TICK / HOUR * 1.0)
    assert (outcome.launches, outcome.missed) == (2, False)


def test_an_interruption_loses_the_work_since_the_last_checkpoint():
    window = _window("####.######")
    terms = Terms(5 * TICK, 11 * TICK, 0.0, checkpoint_seconds=3 * TICK)
    spot = PolicyChoice(PolicyAction.SPOT, 0)
    outcome = _run(window, terms, Scripted(spot, spot, spot, spot, WAIT, spot))
    assert outcome.lost_work_hours == pytest.approx(TICK / HOUR)
    assert outcome.finish_seconds == 7 * TICK
    # Whoever leaves of his own will has saved.
    moved = _run(window, terms, Scripted(spot, spot, ON_DEMAND))
    assert moved.lost_work_hours == 0
    assert moved.finish_seconds == 5 * TICK


def test_a_move_pays_egress_and_takes_the_transfer():
    window = _window("#####", "#####")
    terms = Terms(2 * TICK, 5 * TICK, 0.0, egress_usd=7.0, transfer_seconds=TICK)
    outcome = _run(
        window,
        terms,
        Scripted(PolicyChoice(PolicyAction.SPOT, 0), PolicyChoice(PolicyAction.SPOT, 1)),
    )
    assert outcome.finish_seconds == 3 * TICK
    assert outcome.cost_usd == pytest.approx(7.0 + TICK / HOUR * (1.0 + 2 * 2.0))


def test_the_waiver_and_the_minimum_follow_the_rules_of_the_cloud():
    window = _window("##.###############")
    terms = Terms(9 * TICK, 18 * TICK, 0.0)
    spot = PolicyChoice(PolicyAction.SPOT, 0)

    def cost(**more: object) -> float:
        return _run(window, terms, Scripted(spot, spot, WAIT, spot), **more).cost_usd

    nine = pytest.approx(9 * TICK / HOUR)
    assert cost() == nine
    assert cost(billing=GCE_RULES) == nine  # free only in the first minute
    assert cost(billing=EC2_RULES) == pytest.approx(7 * TICK / HOUR)  # 20 min, interrupted


def test_under_attempts_only_what_was_tried_is_known():
    window = _window(".#.#", "####")
    terms = Terms(3 * TICK, 4 * TICK, 0.0)
    policy = Scripted(
        PolicyChoice(PolicyAction.SPOT, 0),
        PolicyChoice(PolicyAction.SPOT, 1),
        PolicyChoice(PolicyAction.SPOT, 1),
    )
    outcome = _run(window, terms, policy, information=PoolVisibility.ATTEMPTS)
    assert policy.shown[:3] == [[-1, -1], [PoolState.DOWN, -1], [-1, PoolState.UP]]
    assert outcome.cost_usd == pytest.approx(3 * 2.0 * TICK / HOUR)


def test_a_probe_is_paid_for_a_minute_where_it_finds_capacity():
    window = _window(".###", "####")
    terms = Terms(3 * TICK, 4 * TICK, 0.0)
    policy = Scripted(
        PolicyChoice(PolicyAction.PROBE, 0),
        PolicyChoice(PolicyAction.PROBE, 1),
        PolicyChoice(PolicyAction.SPOT, 1),
    )
    outcome = _run(window, terms, policy, information=PoolVisibility.ATTEMPTS)
    assert policy.shown[2] == [PoolState.DOWN, PoolState.UP]
    assert outcome.probes == 2
    assert outcome.cost_usd == pytest.approx(3 * 2.0 * TICK / HOUR + 2.0 / 60)
    with pytest.raises(PolicyFault, match="known to be down"):
        _run(window, terms, Scripted(PolicyChoice(PolicyAction.SPOT, 0)))


def test_a_job_that_does_not_end_in_its_window_is_missed():
    outcome = _run(_window("......"), Terms(TICK, 5 * TICK, 0.0), Scripted(WAIT))
    assert (outcome.missed, outcome.finish_seconds, outcome.cost_usd) == (True, None, 0.0)
