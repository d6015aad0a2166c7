"""Whatever is known of pools: a higher price never wins, the future is not seen, answers repeat."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain.availability.availability_observations import AvailabilityObservations, states
from app.domain.availability.hazard_belief import HazardBelief
from app.domain.availability.pool_hazards import POOL_LOG_PRIOR
from app.domain.deadline.live_choice import LiveChoice, LivePool, LiveState, LiveTerms
from app.domain.deadline.live_placement import TABLES_KEPT, LivePlacement, tables
from app.domain.deadline.policy_state import PlacementAction, RunningOn
from app.domain.market.gpu_choice import GpuChoice
from app.domain.market.offer import Hardware, Market, Offer, Pool
from app.domain.placement.placement import Need, RankedOffer, hour_of_progress, rank_offers
from app.domain.placement.placement_reasons import PlacementOutcome, pool_verdicts
from tests.property.examples import in_full

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
POOLS = [Pool("aws", "r", zone, "type", Market.SPOT) for zone in "abcde"]
V100 = Hardware("V100", 1, 16, 8, 61)
HOUR = 3_600.0
FULL_PRICE = 3.0

prices = st.lists(st.integers(1, 5_000_000), min_size=5, max_size=5)
factors = st.lists(st.floats(0.1, 20.0), min_size=5, max_size=5)
ages = st.floats(0.0, 40.0).map(lambda hours: NOW - timedelta(hours=hours))
spans = st.tuples(ages, st.floats(0.0, 30.0)).map(
    lambda one: (one[0], min(NOW, one[0] + timedelta(hours=one[1])))
)
observations = st.builds(
    AvailabilityObservations,
    st.lists(spans, max_size=4).map(tuple),
    st.lists(ages, max_size=4).map(tuple),
)
pasts = st.lists(observations, min_size=5, max_size=5)
rooms = st.lists(st.sampled_from([True, False, None]), min_size=5, max_size=5)
dollars = st.lists(st.floats(0.05, 3.0), min_size=5, max_size=5)


def _offer(pool: Pool, price: int, factor: float = 1.0) -> Offer:
    return Offer(pool, V100, price, 5_000_000, "ec2", NOW, "test", hazard_factor=factor)


def _judged(prices: list[int], factors: list[float]) -> tuple[RankedOffer, ...]:
    need = Need((GpuChoice("V100", None, 1),), 0, 1, Market.SPOT, (), 1.0, restart_seconds=360.0)
    offers = [_offer(*one) for one in zip(POOLS, prices, factors, strict=True)]
    return rank_offers([(offer, None) for offer in offers], need, NOW)


@given(prices, factors, st.integers(0, 4), st.integers(1, 5_000_000))
def test_raising_a_price_never_moves_an_offer_forward(
    prices: list[int], factors: list[float], raised: int, more: int
) -> None:
    before = [item.offer.pool for item in _judged(prices, factors)]
    dearer = list(prices)
    dearer[raised] += more
    judged = _judged(dearer, factors)
    after = [item.offer.pool for item in judged if item.fits]
    if POOLS[raised] in after:
        assert after.index(POOLS[raised]) >= before.index(POOLS[raised])


@given(prices)
def test_where_nothing_is_known_the_price_alone_decides(prices: list[int]) -> None:
    found = [item.offer.price_microusd_per_hour for item in _judged(prices, [1.0] * 5)]
    assert found == sorted(found)


@given(prices, st.integers(0, 4), st.floats(1.1, 10.0))
def test_more_interruptions_never_move_a_pool_forward(
    prices: list[int], chosen: int, factor: float
) -> None:
    before = [item.offer.pool for item in _judged(prices, [1.0] * 5)]
    known = [factor if place == chosen else 1.0 for place in range(5)]
    after = [item.offer.pool for item in _judged(prices, known)]
    assert after.index(POOLS[chosen]) >= before.index(POOLS[chosen])


def test_a_placement_at_hand_makes_no_table_any_more() -> None:
    """Under the lock of a job's row, where making one would take half a second."""

    def placement(hours: float) -> LivePlacement:
        known = LivePool(POOLS[0], 1.0, AvailabilityObservations((), ()), True)
        return LivePlacement(LiveTerms(FULL_PRICE, hours * HOUR, 300.0), [known], NOW)

    ready = placement(2.0).at_hand()
    for hours in (6.0, 12.0, 30.0)[: TABLES_KEPT + 1]:
        placement(hours).at_hand()
    made = tables.cache_info().misses
    moment = LiveState(1.5 * HOUR, HOUR, RunningOn.NOTHING, None, 0.0, [1.0])
    assert ready.choose(moment).verdict is PlacementAction.SPOT
    assert tables.cache_info().misses == made


def _placement(pasts: list[AvailabilityObservations], rooms: list[bool | None]) -> LivePlacement:
    pools = [
        LivePool(pool, 1.0, past, room)
        for past, room, pool in zip(pasts, rooms, POOLS, strict=True)
    ]
    return LivePlacement(LiveTerms(FULL_PRICE, 2.2 * HOUR, 360.0), pools, NOW)


def _choice(placement: LivePlacement, usd: list[float], left_hours: float) -> LiveChoice:
    moment = LiveState(left_hours * HOUR, HOUR, RunningOn.NOTHING, None, 0.0, usd)
    return placement.choose(moment)


@pytest.mark.full
@settings(max_examples=in_full(20), deadline=None)
@given(pasts, rooms, dollars, st.floats(1.2, 2.1), st.integers(0, 4), st.floats(0.01, 3.0))
def test_raising_a_price_never_makes_a_pool_win(
    pasts: list[AvailabilityObservations],
    rooms: list[bool | None],
    usd: list[float],
    left: float,
    raised: int,
    more: float,
) -> None:
    placement = _placement(pasts, rooms)
    before = _choice(placement, usd, left)
    dearer = list(usd)
    dearer[raised] += more
    after = _choice(placement, dearer, left)
    if before.pool is not POOLS[raised]:
        assert after.pool is not POOLS[raised]
    if before.verdict is not PlacementAction.SPOT:
        assert after.verdict is not PlacementAction.SPOT


@pytest.mark.full
@settings(max_examples=in_full(20), deadline=None)
@given(pasts, rooms, dollars, st.floats(1.2, 2.1))
def test_equal_inputs_give_equal_answers(
    pasts: list[AvailabilityObservations], rooms: list[bool | None], usd: list[float], left: float
) -> None:
    first, second = (_choice(_placement(pasts, rooms), usd, left) for _ in range(2))
    assert first == second


@pytest.mark.full
@settings(max_examples=in_full(20), deadline=None)
@given(pasts, dollars, st.floats(1.2, 2.1), st.lists(st.floats(0.01, 40.0), min_size=1, max_size=4))
def test_what_comes_later_changes_nothing(
    pasts: list[AvailabilityObservations], usd: list[float], left: float, later: list[float]
) -> None:
    """Nothing after the decision counts, as a clock that jumped back would show it."""
    unseen = tuple(NOW + timedelta(hours=hours) for hours in later)
    told = [
        AvailabilityObservations(
            (*one.had, *((at, at + timedelta(hours=1)) for at in unseen)), one.lacked + unseen
        )
        for one in pasts
    ]
    nobody: list[bool | None] = [None] * 5
    assert _choice(_placement(told, nobody), usd, left) == _choice(
        _placement(pasts, nobody), usd, left
    )


@given(observations, st.integers(1, 200), st.integers(60, 3_600))
def test_states_are_those_that_were_seen(
    seen: AvailabilityObservations, steps: int, seconds: int
) -> None:
    step = timedelta(seconds=seconds)
    found = states(seen, NOW, step, steps)
    assert len(found) == steps
    begin = NOW - step * steps
    for place, state in enumerate(found):
        from_at, to_at = begin + step * place, begin + step * (place + 1)
        lived = any(span[0] <= to_at and span[1] >= from_at for span in seen.had)
        lacked = any(from_at <= at <= to_at for at in seen.lacked)
        assert lived or state != 1
        assert lacked or state != 0
        # One on an edge belongs to the step that begins there, the very last one to the last step.
        is_last = place == steps - 1
        held = any(from_at <= at < to_at or (is_last and at == to_at) for at in seen.lacked)
        assert state != -1 or not held


def test_a_refusal_on_the_edge_of_two_steps_belongs_to_the_later_one() -> None:
    step = timedelta(minutes=10)
    for place in range(3):
        refused = AvailabilityObservations((), (NOW - step * (3 - place),))
        assert [
            index for index, state in enumerate(states(refused, NOW, step, 3)) if state == 0
        ] == [place]
    assert states(AvailabilityObservations((), (NOW,)), NOW, step, 3) == [-1, -1, 0]


def test_on_demand_is_chosen_when_nothing_else_is_safe() -> None:
    nothing = [AvailabilityObservations()] * 5
    choice = _choice(_placement(nothing, [True] * 5), [1.0] * 5, 1.05)
    assert choice.verdict is PlacementAction.ON_DEMAND
    assert not choice.rests_on_cost
    assert replace(choice, verdict=PlacementAction.WAIT).rests_on_cost


@settings(max_examples=in_full(20), deadline=None)
@given(pasts, rooms, dollars, st.floats(1.2, 2.1), st.integers(-1, 4))
def test_costs_are_never_nan(
    pasts: list[AvailabilityObservations],
    rooms: list[bool | None],
    usd: list[float],
    left: float,
    here: int,
) -> None:
    """Not even where the pool that the job runs in has room for no more machines."""
    running = RunningOn.NOTHING if here < 0 else RunningOn.SPOT
    pool = None if here < 0 else POOLS[here]
    full: list[bool | None] = [False] * 5
    for known in (rooms, full):
        moment = LiveState(left * HOUR, HOUR, running, pool, 0.0, usd)
        choice = _placement(pasts, known).choose(moment)
        costs = (choice.wait, choice.spot, choice.on_demand)
        assert not any(math.isnan(cost) for cost in costs), costs


GANG_OF_FOUR = Need(
    (GpuChoice("V100", None, 1),), 0, 1, Market.SPOT, (), 1.0, restart_seconds=360.0, gang=4
)
CENTURY = 100 * 365 * 24 * HOUR


def test_a_gang_is_taken_as_often_as_all_its_machines() -> None:
    """Also where only one of its machines is missing."""
    alone = replace(GANG_OF_FOUR, gang=1)
    assert hour_of_progress(_offer(POOLS[0], 1_000_000, 2.0), GANG_OF_FOUR) == hour_of_progress(
        _offer(POOLS[0], 1_000_000, 8.0), alone
    )
    (of_four,) = pool_verdicts(_outcome(GANG_OF_FOUR, 2.0, 10 * HOUR))
    (of_one,) = pool_verdicts(_outcome(alone, 8.0, 10 * HOUR))
    assert of_four.expected_finish_seconds == of_one.expected_finish_seconds
    assert of_four.expected_microusd == pytest.approx(4 * (of_one.expected_microusd or 0), abs=4)
    (of_four,) = pool_verdicts(_outcome(GANG_OF_FOUR, 2.0, None))
    (of_one,) = pool_verdicts(_outcome(alone, 8.0, None))
    assert of_four.expected_microusd == of_one.expected_microusd


@given(prices)
def test_gangs_that_hardly_ever_work_still_go_where_it_is_cheapest(prices: list[int]) -> None:
    offers = [(_offer(pool, price, 1e4), None) for pool, price in zip(POOLS, prices, strict=True)]
    judged = rank_offers(offers, replace(GANG_OF_FOUR, gang=64), NOW)
    found = [item.offer.price_microusd_per_hour for item in judged]
    assert found == sorted(found)


def test_a_finish_is_within_the_calendar() -> None:
    (row,) = pool_verdicts(_outcome(GANG_OF_FOUR, 1e4, CENTURY))
    assert row.expected_finish_seconds is not None
    assert NOW + timedelta(seconds=row.expected_finish_seconds) <= NOW + timedelta(days=36_500)


def _outcome(need: Need, factor: float, work_seconds: float | None) -> PlacementOutcome:
    considered = rank_offers([(_offer(POOLS[0], 1_000_000, factor), None)], need, NOW)
    return PlacementOutcome(considered, need, (), work_seconds)


@contextmanager
def _hasty_threads() -> Iterator[None]:
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(usual)


def test_threads_that_share_a_belief_read_the_same() -> None:
    belief = HazardBelief(1, POOL_LOG_PRIOR)
    for state in (0, 1, 1):
        belief.observe(np.array([state]), 60.0)
    expected = belief.chances(0, None, 60.0)

    def differs(_: int) -> bool:
        found = (belief.chances(0, None, 60.0) for _ in range(2_000))
        return not all(np.array_equal(chances, expected) for chances in found)

    with _hasty_threads(), ThreadPoolExecutor(4) as threads:
        assert not any(threads.map(differs, range(4)))
