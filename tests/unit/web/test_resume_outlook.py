"""What a paused job lacks of its budget, so that resuming does not lead back into the pause."""

from __future__ import annotations

from uuid import UUID

import pytest

from app.domain.lifecycle.entities import Budget
from app.domain.market.offer import Market, Pool
from app.orchestration.placement.unmet_requirements import OfferRow, UnmetRequirements
from app.web.job.resume_outlook import budget_words, microusd_to_add, price_words

POOL = Pool("local", "us-west-2", "us-west-2a", "p3.2xlarge", Market.ON_DEMAND)
USD = 1_000_000


def row(price: int, *, fits: bool = True, extra: int = 0) -> OfferRow:
    return OfferRow(POOL, price, price + extra, 1, 1.0, 4, fits, "fits")


def budget(cap: int | None, spent: int) -> Budget:
    return Budget(
        id=UUID(int=1), project_id=UUID(int=2), job_id=UUID(int=3), cap_microusd=cap,
        spent_microusd=spent, reserved_microusd=0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("cap", "spent", "offers", "nodes", "add"),
    [
        (10 * USD, 600_000, (row(40 * USD), row(44 * USD)), 1, 600_000),
        (10 * USD, 600_000, (row(20 * USD),), 1, 0),
        (10 * USD, 600_000, (row(20 * USD),), 2, 600_000),
        (10 * USD, 600_000, (row(99 * USD, fits=False),), 1, 0),
        (10 * USD, 10 * USD, (), 1, 10_000),
        (None, 10 * USD, (row(99 * USD),), 1, 0),
    ],
)
def test_a_start_needs_the_first_quarter_of_an_hour_of_the_smallest_gang(
    cap: int | None, spent: int, offers: tuple[OfferRow, ...], nodes: int, add: int
):
    unmet = UnmetRequirements("1 machine", offers, ())
    assert microusd_to_add(unmet, budget(cap, spent), nodes) == add


def test_a_budget_that_is_left_but_too_small_names_the_least_that_is_enough():
    told = budget_words(budget(10 * USD, 600_000), 600_000)
    assert told == (
        "$9.40 of its budget is left: it needs a budget of at least $10.60, $0.60 more, for the "
        "first 15 minutes of its machines, or it is paused again, at the prices of now."
    )
    assert budget_words(budget(10 * USD, 600_000), 0) == "$9.40 of its budget is left."
    assert budget_words(budget(None, 600_000), 0) is None


def test_the_price_of_now_has_what_comes_with_the_machines():
    dear = row(2 * USD, extra=USD)
    unmet = UnmetRequirements("2 machines", (dear, row(2_500_000)), ())
    where = "for 2 machines in us-west-2a (p3.2xlarge, on-demand)"
    left = 7_200
    assert price_words(unmet, 2, left) == f"Now: $5.000/h {where}, about $10.00 for the work left."
    unmet = UnmetRequirements("2 machines", (dear,), ())
    assert price_words(unmet, 2, None) == f"Now: $6.000/h {where}, with disks and addresses."
