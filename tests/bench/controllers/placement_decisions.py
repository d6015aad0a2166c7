"""How long a placement's decision takes: among fifty pools, and among five thousand offers.

Processor time of this process, with value tables made beforehand, as controllers make them while
nothing is locked. Not here: reading offers and observations from the database, or what the claim
does with a decision (`queue_cost`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from statistics import median
from time import process_time

import numpy as np

from app.domain.availability.availability_observations import NO_OBSERVATIONS
from app.domain.deadline.live_choice import LivePool, LiveState, LiveTerms
from app.domain.deadline.live_placement import LivePlacement
from app.domain.deadline.placement_choice import Placement
from app.domain.deadline.policy_state import JobTerms, PlacementAction, PolicyState, RunningOn
from app.domain.market.offer import Hardware, Market, Offer, Pool
from app.domain.placement.placement import need_of, rank_offers
from app.domain.spec.job_spec import parse_spec
from tests.bench.bench_environment import BenchEnvironment
from tests.bench.results import Figure

POOLS = 50
OFFERS = 5_000
GOAL_POOLS_MS = 5.0
GOAL_OFFERS_MS = 50.0
_HOUR = 3600.0
_TICK_SECONDS = 600
_PAST_TICKS = 288
_FULL_PRICE = 4.0
_WEIGHED = 20
_NOW = datetime(2026, 7, 1, tzinfo=UTC)
_KINDS = (Hardware("V100", 1, 16, 8, 61), Hardware("A100", 1, 40, 12, 85))
_ONE_KIND, _TWO_KINDS = ["V100:1"], ["V100:1", "A100:1"]


def measure(around: BenchEnvironment) -> list[Figure]:
    """Both decisions, and what a table costs."""
    ticks, rounds = (60, 10) if around.quick else (240, 60)
    around.say(f"deciding {ticks} times among {POOLS} pools")
    _decisions(ticks)  # makes the tables, which change with what the job lives through
    taken = _decisions(ticks)
    around.say(f"deciding {rounds} times among {OFFERS:,} offers")
    weighed, of_two = _evaluations(rounds, _ONE_KIND), _evaluations(rounds, _TWO_KINDS)
    what, offers = f"a decision among {POOLS} pools", f"a decision among {OFFERS:,} offers"
    return [
        Figure("decisions", f"{what}, median", median(taken), "ms", GOAL_POOLS_MS),
        Figure("decisions", f"{what}, slowest", max(taken), "ms", GOAL_POOLS_MS),
        _of_offers(f"{offers}, median", weighed),
        _of_offers(f"{offers}, of two kinds of GPU", of_two),
        Figure("decisions", "a value table for 48 h of work, beforehand", _table(), "ms"),
    ]


def _of_offers(what: str, taken: list[float]) -> Figure:
    """The median; in the slowest is a full pass of Python's collector, which comes now and then."""
    detail = {"slowest_ms": round(max(taken), 1)}
    return Figure("decisions", what, median(taken), "ms", GOAL_OFFERS_MS, True, detail)


def _decisions(ticks: int) -> list[float]:
    """Milliseconds for what is seen and the choice, tick after tick of one job."""
    dice = np.random.default_rng(7)
    up = np.logical_xor.accumulate(dice.random((POOLS, _PAST_TICKS + ticks)) < 0.05, axis=1)
    prices = dice.uniform(1.0, 2.0, up.shape)
    placement = _placement(60 * _HOUR)
    placement.learn(up[:, :_PAST_TICKS], prices[:, :_PAST_TICKS])
    taken, running, pool = [], RunningOn.NOTHING, -1
    for tick in range(ticks):
        seen = up[:, _PAST_TICKS + tick].astype(int).tolist()
        if running is RunningOn.SPOT and not seen[pool]:
            running = RunningOn.NOTHING
        moment = PolicyState(
            time_left_seconds=60 * _HOUR - tick * _TICK_SECONDS,
            work_left_seconds=48 * _HOUR - tick * 0.8 * _TICK_SECONDS,
            running_on=running,
            pool=pool,
            start_left_seconds=0.0,
            at_risk_seconds=0.0,
            seen=seen,
            prices=prices[:, _PAST_TICKS + tick].tolist(),
        )

        def decide(seen: list[int] = seen, moment: PolicyState = moment) -> None:
            placement.begin_tick(seen)
            placement.choose(moment)

        taken.append(_milliseconds(decide))
        choice = placement.choose(moment)
        running = RunningOn(choice.verdict)
        pool = choice.pool if choice.verdict is PlacementAction.SPOT else pool
    return taken


def _evaluations(rounds: int, gpus: list[str]) -> list[float]:
    """Milliseconds for sorting out offers of both markets and weighing the best pools."""
    spec = parse_spec({"run": "python train.py", "resources": {"gpu": gpus}})
    offers = [(_offer(number), None) for number in range(OFFERS)]
    need = replace(need_of(spec, Market.SPOT, 1), restart_seconds=300.0)
    dear = replace(need, market=Market.ON_DEMAND)
    best = [item.offer for item in rank_offers(offers, need, _NOW)[:_WEIGHED]]
    known = [
        LivePool(one.pool, one.price_microusd_per_hour / 1e6, NO_OBSERVATIONS, None) for one in best
    ]
    placement = LivePlacement(LiveTerms(_FULL_PRICE, 60 * _HOUR, 300.0), known, _NOW).at_hand()
    moment = LiveState(
        60 * _HOUR, 48 * _HOUR, RunningOn.NOTHING, None, 0.0, [one.usual_usd for one in known]
    )

    def evaluate() -> None:
        rank_offers(offers, need, _NOW)
        rank_offers(offers, dear, _NOW)
        placement.choose(moment)

    return [_milliseconds(evaluate) for _ in range(rounds)]


def _offer(number: int) -> Offer:
    market = Market.ON_DEMAND if number % 5 == 0 else Market.SPOT
    region, kind = number // 4 % 40, number % 2
    pool = Pool("aws", f"r-{region}", f"r-{region}{'abcd'[number % 4]}", f"type-{number}", market)
    least = 4_000_000 if market is Market.ON_DEMAND else 1_000_000
    price = least + number * 7_919 % 900_000
    quoted_at = _NOW - timedelta(seconds=number % 300)
    return Offer(
        pool, _KINDS[kind], price, 4_000_000, "ec2", quoted_at, "bench",
        hazard_factor=0.5 + number % 7 / 4,
    )  # fmt: skip


def _table() -> float:
    placement = _placement(61 * _HOUR, restart_seconds=333.0)
    placement.usual_price = 1.5
    return _milliseconds(placement.table)


def _placement(horizon_seconds: float, restart_seconds: float = 720.0) -> Placement:
    names = tuple(f"pool-{number}" for number in range(POOLS))
    return Placement(JobTerms(names, _FULL_PRICE, _TICK_SECONDS, restart_seconds, horizon_seconds))


def _milliseconds(act: Callable[[], object]) -> float:
    began = process_time()
    act()
    return 1000 * (process_time() - began)
