"""Budgets: what is reserved, when a claim is refused, when running work must stop."""

from __future__ import annotations

from fractions import Fraction

from app.domain.billing.budget import (
    LiveInstance,
    ReserveWindow,
    claim_allowed,
    first_segment_microusd,
    reserve_microusd,
    start_microusd,
    stop_ordered,
)

WINDOW = ReserveWindow(
    accrual_period_seconds=60, drain_reserve_seconds=120, observation_gap_seconds=20
)
PRICE = 3_600_000  # 1,000 micro-dollars a second


def test_the_reserve_is_the_window_and_what_minimum_charges_still_miss() -> None:
    old = LiveInstance(PRICE, billed_seconds=900)
    young = LiveInstance(PRICE, billed_seconds=45)
    assert reserve_microusd([], WINDOW) == 0
    assert reserve_microusd([old], WINDOW) == 200_000
    assert reserve_microusd([young], WINDOW) == 215_000
    assert reserve_microusd([old, young], WINDOW) == 415_000


def test_the_reserve_is_rounded_up_and_runs_at_the_bills_speed() -> None:
    odd = LiveInstance(1, billed_seconds=900)
    assert reserve_microusd([odd], WINDOW) == 1
    fast = ReserveWindow(60, 120, 20, billing_speed=Fraction(60))
    assert reserve_microusd([LiveInstance(PRICE, 900)], fast) == 12_000_000


def test_the_first_quarter_of_an_hour_counts_every_machine() -> None:
    assert first_segment_microusd([PRICE, 2 * PRICE]) == 900_000 + 1_800_000
    assert first_segment_microusd([1]) == 1


def test_a_start_is_not_stopped_as_soon_as_it_runs() -> None:
    assert start_microusd([PRICE, PRICE], WINDOW) == first_segment_microusd([PRICE, PRICE])
    for window in (WINDOW, WINDOW.at_speed(2), WINDOW.at_speed(60)):
        cap = start_microusd([PRICE], window)
        reserve = reserve_microusd([LiveInstance(PRICE, 0)], window)
        assert not stop_ordered(spent_microusd=0, reserve_microusd=reserve, budget_microusd=cap).yes
    # 15 billed minutes, then 200 s that are each billed as a minute, and a minute at least.
    assert start_microusd([PRICE], WINDOW.at_speed(60)) == (900 + 200 * 60 + 60) * 1_000


def test_a_claim_may_fill_the_cap_exactly_and_not_pass_it() -> None:
    amounts = {"spent_microusd": 500_000, "reserve_microusd": 300_000, "start_microusd": 200_000}
    assert claim_allowed(**amounts, budget_microusd=1_000_000).yes
    refused = claim_allowed(**amounts, budget_microusd=999_999)
    assert not refused.yes
    assert "Over the budget of $1.00 by $0.000001" in refused.sentence
    assert "$0.50 is spent, $0.30 is reserved" in refused.sentence
    assert (
        "It can continue with a budget of at least $1.00 at the prices of now." in refused.sentence
    )
    short = claim_allowed(**amounts, budget_microusd=760_001)
    assert "It can continue with a budget of at least $1.00 at the prices of now." in short.sentence
    assert claim_allowed(**amounts, budget_microusd=None).yes


def test_a_refusal_names_the_speed_of_a_bill_that_runs_faster() -> None:
    amounts = {"spent_microusd": 0, "reserve_microusd": 0, "start_microusd": 200_000}
    plain = claim_allowed(**amounts, budget_microusd=1)
    assert "the first 15 minutes would cost $0.20" in plain.sentence
    faster = claim_allowed(**amounts, budget_microusd=1, billing_speed=60)
    told = (
        "the first 15 minutes of the bill, each second billed as 1m, with saving and releasing the "
        "machines would cost $0.20"
    )
    assert told in faster.sentence


def test_work_stops_when_spent_and_reserve_reach_the_cap() -> None:
    assert not stop_ordered(
        spent_microusd=699_999, reserve_microusd=300_000, budget_microusd=1_000_000
    ).yes
    stop = stop_ordered(spent_microusd=700_000, reserve_microusd=300_000, budget_microusd=1_000_000)
    assert stop.yes
    assert stop.sentence == (
        "Stopping, so that saving and releasing the machines stays within the budget of $1.00: "
        "$0.70 is spent, and saving and releasing may take $0.30."
    )
    over = stop_ordered(spent_microusd=1_000_000, reserve_microusd=1, budget_microusd=1_000_000)
    assert over.sentence.startswith("The budget of $1.00 is used up: $1.00 is spent")
    assert not stop_ordered(spent_microusd=10**12, reserve_microusd=1, budget_microusd=None).yes


def test_stopping_when_ordered_keeps_the_overshoot_within_the_window() -> None:
    machine = LiveInstance(PRICE, billed_seconds=900)
    spent, cap = 0, 5_000_000
    reserve = reserve_microusd([machine], WINDOW)
    while not stop_ordered(spent_microusd=spent, reserve_microusd=reserve, budget_microusd=cap).yes:
        spent += WINDOW.accrual_period_seconds * 1_000
    drained = spent + (WINDOW.drain_reserve_seconds + WINDOW.observation_gap_seconds) * 1_000
    assert drained <= cap
