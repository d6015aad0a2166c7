"""Parts of pages as their templates write them, from values and without a server."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from starlette.requests import Request

from app.domain.billing.billing import Component
from app.domain.billing.books_check import BooksCheck
from app.domain.billing.cost_statement import Activity, JobCostStatement
from app.storage.money.cost_figures import BudgetFigures, CostStatus, JobCost
from app.web.job.job_page import CostShare
from app.web.page_frame import render

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
COST = JobCost(
    job_id=UUID(int=1), project_id=UUID(int=2), name="digits", ended_at=None,
    status=CostStatus.ACCRUING,
    statement=JobCostStatement(
        total_microusd=460_000, by_component={Component.COMPUTE: 460_000, Component.DISK: 0},
        by_activity={Activity.USEFUL: 460_000}, by_instance={}, waived_microusd=0,
        useful_seconds=1800, billed_seconds=1800, on_demand_comparison_microusd=None,
        net_saved_microusd=None, net_saved_ratio=None, rate_saved_ratio=Fraction(1, 2),
    ),
    instances=(), budget=BudgetFigures(None, 460_000, 0), project_budget=None,
    booked_until_at=NOW, unbilled=(), not_metered=("object_storage", "cross_zone"),
    books=BooksCheck(None, 0, 0, 460_000, 3, 0), billing_speed=1,
)  # fmt: skip


def written(template: str, **values: Any) -> str:
    """The text of a template for a visitor of no account, in one line and without markup."""
    shown = render(Request({"type": "http"}), template, None, **values)
    return " ".join(re.sub(r"<[^>]*>", " ", bytes(shown.body).decode()).split())


def costs(cost: JobCost, so_far: str = " so far") -> str:
    shares = (CostShare("useful", 460_000, 0.0, 100.0),)
    view = SimpleNamespace(cost=cost, shares=shares, now=NOW, so_far=so_far)
    return written("job_cost.html", view=view)


def test_a_total_says_so_far_until_the_job_has_ended():
    assert "$0.460000 so far, part by part" in costs(COST)
    assert "Total so far accruing $0.460000" in costs(COST)
    assert "so far" not in costs(COST, "")


def test_the_parts_of_a_bill_have_names_and_those_of_zero_are_left_out():
    one = costs(COST)
    assert "for machine time" not in one, "one part alone is the total"
    both = {Component.COMPUTE: 400_000, Component.DISK: 60_000, Component.EGRESS: 0}
    two = costs(replace(COST, statement=replace(COST.statement, by_component=both)))
    assert "for machine time $0.400000 for disks $0.060000" in two
    assert "egress" not in two
    assert two.endswith(
        "Not metered, so not in these figures: storage of checkpoints and logs in buckets, data "
        "transfer between zones."
    )
    assert "Not metered" not in costs(replace(COST, not_metered=()))


@pytest.mark.parametrize(
    ("machines", "words"),
    [(1, "1 machine is not billed yet"), (2, "2 machines are not billed yet")],
)
def test_machines_without_a_bill_are_counted(machines: int, words: str):
    unbilled = tuple(UUID(int=number) for number in range(machines))
    assert words in costs(replace(COST, unbilled=unbilled))
