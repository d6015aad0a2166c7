"""Whether a move repays itself: by how much, against which risks, and with which hysteresis."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import pytest

from app.domain.availability.gang_hazard import MachineLife, gang_hazard_per_hour
from app.domain.availability.hazard_by_age import TAKEN_PER_HOUR, mean_seconds
from app.domain.placement.migration import (
    Candidate,
    CurrentPlacement,
    MoveTerms,
    decide_move,
    expected_work_seconds,
)

HOUR = 3_600.0
USD = 1_000_000.0
TERMS = MoveTerms(300.0, 60.0, 0.10, 100_000)
FRESH = MachineLife(0.0, 1.0)
OLD = MachineLife(9 * HOUR, 1.0)
COST = re.compile(r"for \$([\d,]+\.\d+)")


def here(**changed: Any) -> CurrentPlacement:
    return replace(CurrentPlacement("a", 2 * USD, (OLD,), 1.0, 24 * HOUR), **changed)


def there(price_usd: float, name: str = "b", **changed: Any) -> Candidate:
    return replace(Candidate(name, price_usd * USD, 1.0, (FRESH,)), **changed)


def test_a_much_cheaper_pool_is_moved_to_and_a_little_cheaper_one_is_not() -> None:
    assert decide_move(here(), [there(0.5)], TERMS).to == "b"
    assert decide_move(here(), [there(1.9)], TERMS).to is None
    assert decide_move(here(), [], TERMS).to is None
    assert "saves" in decide_move(here(), [there(0.5)], TERMS).sentence
    assert "must save" in decide_move(here(), [there(1.9)], TERMS).sentence


def test_the_best_of_several_is_taken_whatever_their_order() -> None:
    pools = [there(0.6, "b"), there(0.4, "c"), there(0.5, "d")]
    assert decide_move(here(), pools, TERMS).to == "c"
    assert decide_move(here(), pools[::-1], TERMS).to == "c"


def test_raising_its_price_never_wins_a_pool_the_move() -> None:
    won = [decide_move(here(), [there(cents / 100)], TERMS).to for cents in range(20, 260, 20)]
    assert won == sorted(won, key=lambda to: to is None)
    assert won[0] == "b"
    assert won[-1] is None


def test_work_that_is_nearly_done_stays() -> None:
    assert decide_move(here(work_seconds=600.0), [there(0.2)], TERMS).to is None
    # A few cents are no reason, however large a share of what is left they are.
    few = here(microusd_per_hour=0.05 * USD, work_seconds=2 * HOUR)
    assert decide_move(few, [there(0.01)], TERMS).to is None


def test_a_faster_bill_is_in_the_costs_and_not_in_the_prices() -> None:
    usual = decide_move(here(), [there(0.5)], TERMS)
    quick = decide_move(here(billing_speed=60), [there(0.5, billing_speed=60)], TERMS)
    assert quick.to == usual.to == "b"
    assert "at $0.50 an hour" in quick.sentence
    assert "each second billed as 1m" in quick.sentence
    assert "billed as" not in usual.sentence
    once, fast = (
        [float(cost.replace(",", "")) for cost in COST.findall(one.sentence)]
        for one in (usual, quick)
    )
    assert len(once) == 2, "of moving and of staying"
    assert fast == pytest.approx([60 * cost for cost in once], rel=0.01)


def test_egress_counts() -> None:
    assert decide_move(here(), [there(0.5, egress_microusd=0)], TERMS).to == "b"
    assert decide_move(here(), [there(0.5, egress_microusd=40_000_000)], TERMS).to is None


def test_a_faster_machine_may_cost_more() -> None:
    assert decide_move(here(), [there(3.0, speed=4.0)], TERMS).to == "b"
    assert decide_move(here(), [there(3.0, speed=1.0)], TERMS).to is None


def test_what_is_saved_is_saved_for_as_long_as_the_present_machine_would_have_lived() -> None:
    """One that is soon taken anyway is not worth a move: what follows it is cheap by itself."""
    warned = here(machines=(replace(OLD, warned=True),))
    assert decide_move(here(), [there(1.2)], TERMS).to == "b"
    assert decide_move(warned, [there(1.2)], TERMS).to is None


def test_a_pool_that_takes_its_machines_often_is_not_moved_to_for_its_price() -> None:
    assert decide_move(here(), [there(1.2, hazard_factor=1.0)], TERMS).to == "b"
    often = there(1.2, hazard_factor=8.0, machines=(replace(FRESH, factor=8.0),))
    assert decide_move(here(), [often], TERMS).to is None


def test_a_gang_is_lost_with_the_first_of_its_machines() -> None:
    one, four = (
        decide_move(
            here(machines=(OLD,) * count),
            [there(1.2, machines=(FRESH,) * count)],
            TERMS,
        )
        for count in (1, 4)
    )
    assert (one.to, four.to) == ("b", None)


def test_a_share_of_one_means_never() -> None:
    assert decide_move(here(), [there(0.01)], replace(TERMS, saving_share=1.0)).to is None


def test_expected_work_is_the_mean_life_and_no_more_than_the_work() -> None:
    alone = expected_work_seconds((FRESH,), 30 * 86_400.0)
    assert alone == pytest.approx(mean_seconds(TAKEN_PER_HOUR), rel=0.01)  # faults aside
    assert expected_work_seconds((FRESH, FRESH), 30 * 86_400.0) < alone
    assert expected_work_seconds((OLD,), 60.0) == pytest.approx(60.0, rel=0.001)
    assert expected_work_seconds((MachineLife(0.0, None),), 3 * HOUR) == pytest.approx(
        3 * HOUR, rel=0.001
    )


@pytest.mark.parametrize("age", [0.1, 123.456, 333.3, 371.123457, 599.7])
def test_no_age_leaves_the_end_of_a_life_out(age: float) -> None:
    """Ages of broken seconds end a hair before an edge; the sum by small steps is the judge."""
    most, step = 40 * HOUR, 20.0
    alive, summed = 1.0, 0.0
    for number in range(int(most / step)):
        middle = MachineLife(age + (number + 0.5) * step, 1.0)
        survives = math.exp(-gang_hazard_per_hour((middle,)) / HOUR * step)
        summed += alive * (1 + survives) / 2 * step
        alive *= survives
    assert expected_work_seconds((MachineLife(age, 1.0),), most) == pytest.approx(summed, rel=0.01)
