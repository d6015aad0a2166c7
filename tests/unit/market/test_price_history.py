"""A pool's past as people look at it: nothing of its extremes is lost, and time is what counts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from app.cli.fleet.price_chart import chart, history_lines
from app.domain.market.price_history import PriceSummary, Step, levels, summary, thinned, within

START = datetime(2026, 3, 1, tzinfo=UTC)


def at(hours: float) -> datetime:
    return START + timedelta(hours=hours)


def test_the_median_is_by_time_and_not_by_steps() -> None:
    steps = [(at(0), 100), (at(1), 900), (at(2), 800), (at(3), 200)]
    assert summary(steps, at(24)) == PriceSummary(100, 200, 900)
    assert summary(steps[:1], at(0)) == PriceSummary(100, 100, 100)
    assert summary([], at(1)) is None


def test_a_span_begins_with_the_price_in_effect() -> None:
    steps = [(at(0), 100), (at(5), 300), (at(9), 200)]
    assert within(steps, at(6), at(9)) == [(at(6), 300)]
    assert within(steps, at(4), at(10)) == [(at(4), 100), (at(5), 300), (at(9), 200)]
    assert within(steps, at(-5), at(1)) == [(at(0), 100)]
    assert within([], at(0), at(1)) == []


def test_levels_are_unknown_before_the_first_price() -> None:
    steps = [(at(2), 100), (at(3), 300)]
    assert levels(steps, at(0), at(4), 4) == [None, None, 100, 300]


histories = st.lists(
    st.tuples(st.integers(0, 100_000), st.integers(0, 50)), max_size=400, unique_by=lambda s: s[0]
).map(lambda told: [(START + timedelta(seconds=s), price) for s, price in told])


@settings(deadline=None)
@given(histories, st.integers(3, 60))
def test_thinning_keeps_the_bound_the_extremes_the_first_and_only_what_was_there(
    steps: list[Step], most: int
) -> None:
    kept = thinned(steps, most)
    assert len(kept) <= most
    assert set(kept) <= set(steps)
    assert kept == sorted(kept)
    assert all(one[1] != other[1] for one, other in pairwise(kept))
    if steps:
        assert kept[0] == min(steps)
        prices = [price for _, price in steps]
        assert {min(prices), max(prices)} <= {price for _, price in kept}


@settings(deadline=None)
@given(histories)
def test_a_price_that_holds_is_no_step_and_thinning_twice_changes_nothing(
    steps: list[Step],
) -> None:
    once = thinned(steps, 30)
    assert thinned(once, 30) == once


def test_the_chart_names_its_lowest_and_highest_row() -> None:
    drawn = chart([None, 100, 100, 200, 140], "$0.100", "$0.200")
    assert drawn == [
        "  $0.200 │   ─",
        "         │",
        "         │",
        "         │    ─",
        "         │",
        "  $0.100 │ ──",
    ]
    assert chart([100, 100], "$1", "$1") == ["  $1 │──"]
    assert chart([None], "$1", "$1") == []


def test_a_pool_without_a_past_says_so() -> None:
    row = {
        "pool": "aws/us-east-1/us-east-1a/g5.xlarge/spot",
        "price_microusd_per_hour": 306_000,
        "from_at": START.isoformat(),
        "to_at": at(24).isoformat(),
        "summary": None,
        "steps": [],
        "preemptions": [],
    }
    assert history_lines(row)[1] == "  No price is recorded in this time yet."
    told = {
        **row,
        "summary": {"least": 250_000, "median": 306_000, "most": 400_000},
        "steps": [
            {"at": at(hours).isoformat(), "microusd_per_hour": price}
            for hours, price in ((0, 306_000), (20, 400_000), (22, 250_000))
        ],
        "preemptions": [{"from_at": None, "to_at": None, "rate": 0.25}],
    }
    lines = history_lines(told)
    assert lines[0].endswith("now 0.306")
    assert "least 0.250   median 0.306   most 0.400" in lines[-2]
    assert lines[-1] == "  interrupted by the cloud: 25 % of its spot machines at last"
    assert lines[-3].endswith("2026-03-01" + " " * 40 + "2026-03-02")


def test_a_constant_price_draws_a_line_however_short_it_is_known() -> None:
    """A list price that was first recorded an hour ago, in a chart of thirty days."""
    row = {
        "pool": "aws/us-east-1/us-east-1a/g5.xlarge/on_demand",
        "price_microusd_per_hour": 1_006_000,
        "from_at": at(-30 * 24).isoformat(),
        "to_at": at(1).isoformat(),
        "summary": {"least": 1_006_000, "median": 1_006_000, "most": 1_006_000},
        "steps": [{"at": START.isoformat(), "microusd_per_hour": 1_006_000}],
        "preemptions": [],
    }
    assert history_lines(row)[1:] == [
        "  1.006 │" + "─" * 60,
        f"         {START:%Y-%m-%d %H:%M}" + " " * 28 + f"{at(1):%Y-%m-%d %H:%M}",
        "  constant: 1.006",
    ]
    whole = {**row, "steps": [{"at": row["from_at"], "microusd_per_hour": 1_006_000}]}
    assert history_lines(whole)[1] == "  1.006 │" + "─" * 60
    assert f"{at(-30 * 24):%Y-%m-%d}" in history_lines(whole)[2]
