"""When a running elastic gang gets another size, and what people read of a choice."""

from __future__ import annotations

from dataclasses import replace

from app.domain.placement.gang_size import (
    RESIZE_EVERY_SECONDS,
    ResizeView,
    SizeOption,
    SizeQuestion,
    choose_size,
    resize_repays,
)
from app.domain.spec.node_range import NodeRange

HOUR = 3_600.0
NODES = NodeRange(1, 4)
PRICE, FULL = 300_000, 3_000_000
QUESTION = SizeQuestion(NODES, 40 * HOUR, 300.0)


def option(count: int) -> SizeOption:
    return SizeOption(count, PRICE, FULL, 0.5)


def view(now: int, chosen: int) -> ResizeView:
    return ResizeView(option(now), option(chosen), RESIZE_EVERY_SECONDS)


def test_growing_repays_where_much_is_left_and_time_is_worth_more_than_machines():
    why = resize_repays(view(1, 3), QUESTION)
    assert why is not None
    assert "3 machines instead of 1" in why
    assert resize_repays(view(1, 3), replace(QUESTION, work_seconds=600.0)) is None
    assert resize_repays(view(1, 3), replace(QUESTION, work_seconds=None)) is None


def test_a_gang_keeps_its_size_for_a_while():
    soon = replace(view(1, 3), sized_seconds=RESIZE_EVERY_SECONDS - 1)
    assert resize_repays(soon, QUESTION) is None
    assert resize_repays(view(2, 2), QUESTION) is None


def test_a_rough_market_makes_a_gang_smaller_and_not_back_at_once():
    rough = [replace(option(count), hazard_factor=4.0) for count in (1, 4)]
    assert resize_repays(ResizeView(rough[1], rough[0], RESIZE_EVERY_SECONDS), QUESTION) is not None
    assert resize_repays(ResizeView(rough[0], rough[1], RESIZE_EVERY_SECONDS), QUESTION) is None


def test_with_a_deadline_a_gang_grows_only_where_it_is_in_danger():
    safe = replace(QUESTION, deadline_seconds=200 * HOUR)
    assert resize_repays(view(1, 3), safe) is None
    danger = replace(QUESTION, deadline_seconds=40 * HOUR)
    why = resize_repays(view(1, 3), danger)
    assert why is not None
    assert "at risk" in why


def test_with_a_deadline_a_gang_shrinks_only_with_room_to_spare():
    assert resize_repays(view(4, 1), replace(QUESTION, deadline_seconds=200 * HOUR)) is not None
    assert resize_repays(view(4, 1), replace(QUESTION, deadline_seconds=60 * HOUR)) is None


def test_a_choice_says_its_price_and_why():
    options = [option(count) for count in range(1, 5)]
    far = choose_size(options, replace(QUESTION, deadline_seconds=200 * HOUR))
    near = choose_size(options, replace(QUESTION, deadline_seconds=2 * HOUR))
    poor = choose_size(options, replace(QUESTION, money_left_microusd=13_000_000))
    assert far is not None
    assert far.count == 1
    assert far.why.startswith("for $0.30 an hour the cheapest that meets the deadline in 8d 8h")
    assert near is not None
    assert near.count > 1
    assert "the fastest" in near.why
    assert poor is not None
    assert poor.why.endswith("within the budget")


def test_a_budget_is_held_against_the_bill_where_the_bill_runs_faster():
    bounded = replace(QUESTION, deadline_seconds=2 * HOUR, money_left_microusd=20_000_000)
    options = [option(count) for count in range(1, 5)]
    usual = choose_size(options, bounded)
    fast = choose_size([replace(one, billing_speed=60) for one in options], bounded)
    assert usual is not None
    assert fast is not None
    assert (usual.count, fast.count) == (4, 1)
    assert fast.why.startswith("for $0.30 an hour")
