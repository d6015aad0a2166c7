"""The price of a useful hour: exact where it can be, and ordered everywhere."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.adapters.seeded_draws import seeded_draws
from app.domain.availability.hazard_by_age import TAKEN_PER_HOUR, mean_seconds, seconds_until
from app.domain.placement.expected_cost import SHARE_MIN, expect, useful_hour_microusd, useful_share

factors = st.floats(0.01, 50)
restarts = st.floats(0, 7_200)


def test_without_restarts_all_paid_time_is_work():
    assert useful_share(1.0, 0.0) == pytest.approx(1.0)


def test_the_share_is_that_of_many_drawn_lives():
    draw, restart = seeded_draws(3), 600.0
    lives = [seconds_until(TAKEN_PER_HOUR, 2.0, draw()) for _ in range(20_000)]
    worked = sum(max(0.0, life - restart) for life in lives)
    assert useful_share(2.0, restart) == pytest.approx(worked / sum(lives), rel=0.02)


def test_what_comes_after_nothing_is_all_of_it():
    assert mean_seconds(TAKEN_PER_HOUR, 1.0, 0.0) == mean_seconds(TAKEN_PER_HOUR)


@given(factor=factors, restart=restarts, price=st.floats(1, 1e9), more=st.floats(1, 1e9))
def test_a_dearer_pool_never_has_the_cheaper_hour(
    factor: float, restart: float, price: float, more: float
):
    assert useful_hour_microusd(price + more, factor, restart) > useful_hour_microusd(
        price, factor, restart
    )


@given(factor=factors, restart=restarts)
def test_a_pool_that_takes_more_is_never_worth_more(factor: float, restart: float):
    assert useful_share(factor * 1.5, restart) <= useful_share(factor, restart) + 1e-9
    assert SHARE_MIN <= useful_share(factor, restart) <= 1.0 + 1e-9


def test_what_remaining_work_is_expected_to_take():
    on_demand = expect(3_600_000, 3_600, 600, None)
    assert (on_demand.microusd, on_demand.seconds) == (4_200_000, 4_200)
    assert on_demand.interruptions_per_hour == 0.0
    spot = expect(3_600_000, 3_600, 600, 1.0)
    assert spot.seconds == pytest.approx(600 + 3_600 / useful_share(1.0, 600))
    assert spot.interruptions_per_hour == pytest.approx(3_600 / mean_seconds(TAKEN_PER_HOUR))
