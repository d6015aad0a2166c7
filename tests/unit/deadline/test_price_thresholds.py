"""Waiting for cheaper pools while there is time, and not beyond it."""

from __future__ import annotations

import pytest

from app.domain.deadline.placement_choice import Placement
from app.domain.deadline.policy_state import JobTerms, PlacementAction, PolicyState, RunningOn
from app.domain.deadline.price_thresholds import PriceThresholds

HOUR = 3600.0
TICK = 600.0
PRICES = (1.0, 1.4, 2.0)


def _watched(cheap_share: int = 4, hours: int = 40) -> PriceThresholds:
    """The cheapest pool is up in one hour of `cheap_share`, the others always."""
    levels = PriceThresholds(3)
    for hour in range(hours):
        for _ in range(6):
            levels.watch((hour % cheap_share == 0, True, True), PRICES, TICK / HOUR)
    return levels


def test_with_time_to_spare_only_the_cheapest_is_worth_it():
    assert list(_watched().worth_waiting_for(PRICES, 10.0, 90.0, 0.1)) == [0]


def test_as_time_gets_short_dearer_pools_become_worth_it():
    levels = _watched()
    counts = [
        len(levels.worth_waiting_for(PRICES, 10.0, hours, 0.1)) for hours in (90.0, 30.0, 11.0)
    ]
    assert counts == sorted(counts)
    assert counts[0] == 1
    assert counts[-1] > 1


def test_what_has_hardly_been_watched_rules_nothing_out():
    assert list(_watched(hours=2).worth_waiting_for(PRICES, 1.0, 90.0, 0.1)) == [0, 1, 2]


def test_pools_of_one_price_are_one_level():
    levels = PriceThresholds(3)
    for tick in range(240):
        levels.watch((tick % 2 == 0, True, tick % 3 == 0), (1.0, 1.0, 1.0), TICK / HOUR)
    assert set(levels.worth_waiting_for((1.0, 1.0, 1.0), 5.0, 90.0, 0.1)) == {0, 1, 2}


def test_restarts_count_against_a_pool_that_never_lasts():
    levels = PriceThresholds(2)
    for tick in range(240):
        levels.watch((tick % 2 == 0, True), (1.0, 1.2), TICK / HOUR)
    assert 1 in levels.worth_waiting_for((1.0, 1.2), 5.0, 900.0, 0.15)


@pytest.mark.parametrize(
    ("slack", "verdict"), [(6.0, PlacementAction.WAIT), (1.05, PlacementAction.SPOT)]
)
def test_a_job_waits_for_the_cheap_pool_only_while_it_can_afford_to(
    slack: float, verdict: PlacementAction
):
    terms = JobTerms(("cheap", "dear"), 4.0, TICK, 720.0, slack * 10 * HOUR)
    placement = Placement(terms)
    placement.quoted = (1.0, 2.0)
    for tick in range(240):
        placement.begin_tick((int(tick // 6 % 3 == 0 and tick < 234), 1))
    moment = PolicyState(
        slack * 10 * HOUR, 10 * HOUR, RunningOn.NOTHING, -1, 0.0, 0.0, (0, 1), (1.0, 2.0)
    )
    assert placement.choose(moment).verdict is verdict
