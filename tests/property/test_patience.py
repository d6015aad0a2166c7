"""Patience waits only for a saving that is expected, and never makes a dearer pool win."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.adapters.seeded_draws import seeded_draws
from app.domain.availability.hazard_models import posterior
from app.domain.estimate.simulated_run import EstimateInput, PoolQuote, simulated_run
from app.domain.market.gpu_choice import GpuChoice
from app.domain.market.offer import Hardware, Market, Offer, Pool
from app.domain.placement.patience import Patience, back_chance, patient
from app.domain.placement.placement import Need, RankedOffer, rank_offers
from app.domain.spec.job_spec import parse_spec
from app.domain.units.errors import SpecError

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
POOLS = [Pool("aws", "r", zone, "type", Market.SPOT) for zone in "abcde"]
NEED = Need((GpuChoice("V100", None, 1),), 0, 1, Market.SPOT, (), 1.0, restart_seconds=360.0)
V100 = Hardware("V100", 1, 16, 8, 61)
HOUR = 3_600.0

prices = st.lists(st.integers(1, 5_000_000), min_size=5, max_size=5)
resting = st.lists(st.booleans(), min_size=5, max_size=5)
patiences = st.builds(
    Patience,
    st.floats(0.0, 100_000.0),
    st.floats(0.0, 100_000.0),
    st.one_of(st.none(), st.floats(1.0, 1e6)),
)


def _judged(prices: list[int], resting: list[bool]) -> tuple[RankedOffer, ...]:
    offers = [
        (
            Offer(pool, V100, price, 5_000_000, "ec2", NOW, "test"),
            NOW + timedelta(minutes=5) if rests else None,
        )
        for pool, price, rests in zip(POOLS, prices, resting, strict=True)
    ]
    return rank_offers(offers, NEED, NOW)


def _fitting(judged: tuple[RankedOffer, ...], patience: Patience) -> set[Pool]:
    return {item.offer.pool for item in patient(judged, NEED, patience, NOW) if item.fits}


@given(prices, resting, patiences)
def test_without_patience_nothing_waits(
    prices: list[int], resting: list[bool], patience: Patience
) -> None:
    judged = _judged(prices, resting)
    assert patient(judged, NEED, replace(patience, left_seconds=0.0), NOW) == judged


@given(prices, resting, patiences, st.floats(1.0, 100_000.0))
def test_more_patience_never_takes_a_pool_that_less_would_not(
    prices: list[int], resting: list[bool], patience: Patience, more: float
) -> None:
    judged = _judged(prices, resting)
    longer = replace(patience, left_seconds=patience.left_seconds + more)
    assert _fitting(judged, longer) <= _fitting(judged, patience)


@given(prices, resting, patiences, st.integers(0, 4), st.integers(1, 5_000_000))
def test_raising_a_price_never_makes_a_pool_fit(
    prices: list[int], resting: list[bool], patience: Patience, place: int, more: int
) -> None:
    dearer = [price + more * (at == place) for at, price in enumerate(prices)]
    fits = POOLS[place] in _fitting(_judged(prices, resting), patience)
    assert fits or POOLS[place] not in _fitting(_judged(dearer, resting), patience)


@given(st.floats(0.0, 1e6), st.floats(0.0, 1e6))
def test_a_chance_is_one(waited: float, left: float) -> None:
    assert 0.0 <= back_chance(waited, left) <= 1.0


def test_a_pool_is_not_waited_for_without_a_saving_in_it() -> None:
    judged = _judged([1_000_000, 1_020_000, 2_000_000, 3_000_000, 4_000_000], [True] + [False] * 4)
    assert POOLS[1] in _fitting(judged, Patience(6 * HOUR, 0.0, None))
    dearer = _judged([1_000_000, 1_500_000, 2_000_000, 3_000_000, 4_000_000], [True] + [False] * 4)
    assert _fitting(dearer, Patience(6 * HOUR, 0.0, None)) == set()
    years = Patience(6 * HOUR, 0.0, 10_000 * HOUR)
    assert POOLS[1] in _fitting(dearer, years), "its machines live for a share of the work only"


def test_more_patience_costs_no_more_in_expectation() -> None:
    asked = EstimateInput(
        work_seconds=4 * HOUR,
        spot=(PoolQuote("a", 1_000_000), PoolQuote("b", 1_900_000)),
        on_demand=None,
        boot_seconds=360.0,
        acquire_seconds=0.0,
    )
    known = [posterior(pool.experience) for pool in asked.spot]

    def mean(patience_hours: float) -> float:
        question = replace(asked, patience_seconds=patience_hours * HOUR)
        draws = (seeded_draws(seed) for seed in range(1_500))
        return sum(simulated_run(question, known, draw).microusd for draw in draws) / 1_500

    costs = [mean(hours) for hours in (0.0, 0.5, 2.0, 8.0)]
    for less, more in pairwise(costs):
        assert more <= less * 1.005
    assert costs[-1] < 0.95 * costs[0]


def test_patience_is_for_jobs_without_a_deadline() -> None:
    spec = {"run": "train", "estimate": {"hours": 1}, "patience": "90m"}
    assert parse_spec(spec).patience_seconds == 5_400
    assert parse_spec(parse_spec(spec).to_json()).patience_seconds == 5_400
    assert parse_spec({"run": "train"}).patience_seconds == 0
    with pytest.raises(SpecError, match="without a deadline"):
        parse_spec({**spec, "deadline": "8h"})
