"""What a paused job lacks of its budget, so that resuming does not lead back into the pause."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import pytest

from app.domain.billing.budget import BudgetOwner, ReserveWindow
from app.domain.billing.headroom import BudgetLine, Headroom
from app.domain.lifecycle.entities import Budget
from app.domain.market.offer import Hardware, Market, Offer, Pool
from app.orchestration.placement.unmet_requirements import OfferRow, UnmetRequirements
from app.web.job.resume_outlook import BudgetLack, budget_words, lack_of_budget, price_words

POOL = Pool("local", "us-west-2", "us-west-2a", "p3.2xlarge", Market.ON_DEMAND)
V100 = Hardware("V100", 1, 16, 8, 61)
NOW = datetime(2026, 3, 1, tzinfo=UTC)
USD = 1_000_000


WINDOW = ReserveWindow(5, 45, 5)


def row(price: int, *, fits: bool = True, extra: int = 0, speed: int = 1) -> OfferRow:
    return OfferRow(POOL, price, price + extra, speed, 1.0, 4, fits, "fits")


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
    lack = lack_of_budget(unmet, budget(cap, spent), nodes, WINDOW)
    assert lack == BudgetLack(add, "the first 15 minutes")


def test_a_start_on_a_faster_bill_needs_what_it_would_be_stopped_with_too():
    """A claim is allowed by the same rule, so it neither pays for nothing nor is refused."""
    unmet = UnmetRequirements("1 machine", (row(920_000, speed=60),), ())
    paused = budget(1_200_000, 530_000)
    lack = lack_of_budget(unmet, paused, 1, WINDOW)
    add = lack.microusd
    offer = Offer(POOL, V100, 920_000, 3 * USD, "ec2", NOW, "test", billing_speed=60)

    def claimed(cap: int) -> bool:
        line = BudgetLine(BudgetOwner.JOB, cap_microusd=cap, spent_microusd=530_000)
        return bool(Headroom((line,), 0, WINDOW).bids_covered([offer], 1).bids)

    assert add == 230_000 + 858_667 - 670_000
    assert lack.pays_for == (
        "the first 15 minutes of the bill, each second billed as 1m, with saving and releasing the "
        "machines"
    )
    assert not claimed(1_200_000 + add - 1)
    assert claimed(1_200_000 + add)


def test_a_budget_that_is_left_but_too_small_names_the_least_that_is_enough():
    told = budget_words(budget(10 * USD, 600_000), BudgetLack(600_000, "the first 15 minutes"))
    assert told == (
        "$9.40 of its budget is left: it needs a budget of at least $10.60, $0.60 more, for the "
        "first 15 minutes, or it is paused again, at the prices of now."
    )
    enough = BudgetLack(0, "the first 15 minutes")
    assert budget_words(budget(10 * USD, 600_000), enough) == "$9.40 of its budget is left."
    assert budget_words(budget(None, 600_000), enough) is None


def test_the_price_of_now_has_what_comes_with_the_machines():
    dear = row(2 * USD, extra=USD)
    unmet = UnmetRequirements("2 machines", (dear, row(2_500_000)), ())
    where = "for 2 machines in us-west-2a (p3.2xlarge, on-demand)"
    left = 7_200
    assert price_words(unmet, 2, left) == (
        f"Cheapest now: $5.000/h {where}, about $10.00 to the end. It may get another pool."
    )
    unmet = UnmetRequirements("2 machines", (dear,), ())
    assert (
        price_words(unmet, 2, None) == f"Cheapest now: $6.000/h {where}, with disks and addresses."
    )
