"""Months begin in UTC whatever the day, and a share is told once it is reached and not before."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest

from app.domain.billing.budget import BudgetOwner, name_budget
from app.domain.launch_limits.monthly_budget import (
    AtFull,
    MonthlyBudget,
    crossed,
    month_of,
    next_month,
    read_at_full,
)
from app.domain.units.errors import InvalidValue

MARCH = datetime(2026, 3, 1, tzinfo=UTC)
BUDGET = MonthlyBudget(100_000_000, AtFull.BLOCK_NEW, MARCH, 0)


@pytest.mark.parametrize(
    ("at", "begins", "ends"),
    [
        (datetime(2026, 1, 31, 23, 59, 59, tzinfo=UTC), (2026, 1), (2026, 2)),
        (datetime(2024, 2, 29, tzinfo=UTC), (2024, 2), (2024, 3)),
        (datetime(2026, 12, 31, 12, tzinfo=UTC), (2026, 12), (2027, 1)),
        (datetime(2026, 5, 1, 1, tzinfo=timezone(timedelta(hours=2))), (2026, 4), (2026, 5)),
    ],
)
def test_a_month_is_one_of_the_calendar_in_utc(
    at: datetime, begins: tuple[int, int], ends: tuple[int, int]
) -> None:
    assert month_of(at) == datetime(*begins, 1, tzinfo=UTC)
    assert next_month(at) == datetime(*ends, 1, tzinfo=UTC)


def test_a_share_is_told_once_it_is_reached() -> None:
    def passed(spent: int, told: set[int]) -> tuple[int, ...]:
        return replace(BUDGET, spent_microusd=spent).passed(told)

    assert passed(49_999_999, set()) == ()
    assert passed(50_000_000, set()) == (50,)
    assert passed(79_999_999, {50}) == ()
    assert passed(130_000_000, {50}) == (80, 100)
    assert passed(130_000_000, {50, 80, 100}) == ()


def test_the_forecast_goes_on_at_the_price_of_now_to_the_end_of_the_month() -> None:
    budget = replace(BUDGET, spent_microusd=10_000_000)
    assert budget.forecast(0, MARCH) == 10_000_000
    last_hour = datetime(2026, 3, 31, 23, tzinfo=UTC)
    assert budget.forecast(2_000_000, last_hour) == 12_000_000
    assert budget.forecast(2_000_000, last_hour + timedelta(hours=2)) == 10_000_000
    assert budget.forecast(1, MARCH) == 10_000_000 + 31 * 24


def test_a_sentence_says_whose_budget_it_is_and_when_the_month_ends() -> None:
    told = name_budget("It is used up.", BudgetOwner.PROJECT, BUDGET.ends_at)
    assert told == (
        "The project's budget of this month, until 2026-04-01 00:00:00 UTC: It is used up."
    )
    assert read_at_full("drain_and_pause") is AtFull.DRAIN_AND_PAUSE
    with pytest.raises(InvalidValue, match="use block_new, drain_and_pause"):
        read_at_full("stop")


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (0, 49, ()),
        (49, 50, (50,)),
        (50, 79, ()),
        (0, 100, (50, 80, 100)),
        (99, 250, (100,)),
        (100, 250, ()),
        (90, 70, ()),
    ],
)
def test_shares_are_crossed_once_by_what_is_spent(
    before: int, after: int, told: tuple[int, ...]
) -> None:
    assert crossed(before, after, 100) == told
    assert crossed(before, after, 0) == ()
