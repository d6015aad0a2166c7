"""Who gets the units that are left over, and what cannot be shared at all."""

from __future__ import annotations

import pytest

from app.domain.units.apportionment import apportion, divide_half_even, divide_up


def test_left_over_units_go_to_the_largest_remainders_then_to_the_earlier_key() -> None:
    assert apportion(10, {"a": 333, "b": 334, "c": 333}) == {"a": 3, "b": 4, "c": 3}
    assert apportion(2, {"a": 1, "b": 1, "c": 1}) == {"a": 1, "b": 1, "c": 0}
    assert apportion(-2, {"a": 1, "b": 1, "c": 1}) == {"a": -1, "b": -1, "c": 0}
    assert apportion(0, {"a": 0, "b": 0}) == {"a": 0, "b": 0}


def test_money_without_a_key_to_go_to_is_an_error() -> None:
    with pytest.raises(ValueError, match="cannot share 5: no key has any weight"):
        apportion(5, {"a": 0})
    with pytest.raises(ValueError, match="negative weight"):
        apportion(5, {"a": -1, "b": 3})


def test_ties_round_to_even_and_reserves_round_up() -> None:
    assert [divide_half_even(half, 2) for half in (1, 3, 5, -1, -3)] == [0, 2, 2, 0, -2]
    assert (divide_up(4, 2), divide_up(5, 2), divide_up(0, 2)) == (2, 3, 0)
    for divide in (divide_half_even, divide_up):
        with pytest.raises(ValueError, match="must be positive"):
            divide(1, 0)
