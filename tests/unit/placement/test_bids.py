"""What one launch bids on: offers that fit, of one region; no pool that has just interrupted."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from app.domain.market.gpu_choice import parse_gpu_choice
from app.domain.market.offer import Hardware, Market, Offer, Pool
from app.domain.placement.placement import (
    Need,
    bids_for_best_region,
    hour_of_progress,
    rank_offers,
    work_speed,
)
from app.domain.units.money import format_usd

NOW = datetime(2026, 3, 1, tzinfo=UTC)
A, B, FAR = (
    Pool("aws", zone[:-1], zone, "p3.2xlarge", Market.SPOT)
    for zone in ("us-west-2a", "us-west-2b", "us-east-1a")
)
NEED = Need((parse_gpu_choice("V100"),), 0, 1, Market.SPOT, (), 0.9)


@pytest.mark.parametrize(
    ("lost", "pools", "bids"),
    [
        ([], [A, B, FAR], [A, B]),
        # A cloud takes the one of its bids that suits itself, first or last.
        ([A], [A, B, FAR], [B]),
        ([A, B], [A, B, FAR], [FAR]),
        ([A], [A], [A]),
    ],
)
def test_a_pool_that_has_just_interrupted_gets_no_bid_beside_another(
    lost: list[Pool], pools: list[Pool], bids: list[Pool]
) -> None:
    hardware = Hardware("V100", 1, 16, 8, 61)
    offers = [
        (Offer(pool, hardware, price, 3_000_000, "ec2", NOW, "test"), None)
        for price, pool in enumerate(pools, 1_000_000)
    ]
    need = replace(NEED, last_choice=frozenset(lost))
    assert [offer.pool for offer in bids_for_best_region(rank_offers(offers, need, NOW))] == bids


def test_a_pool_that_has_just_interrupted_tells_its_past_apart() -> None:
    hardware = Hardware("V100", 1, 16, 8, 61)
    rare = Offer(A, hardware, 1_000_000, 3_000_000, "ec2", NOW, "test", hazard_factor=0.3)
    [seldom] = rank_offers([(rare, None)], NEED, NOW)
    assert "over its whole past" not in seldom.why
    [item] = rank_offers([(rare, None)], replace(NEED, last_choice=frozenset({A})), NOW)
    assert item.why.startswith(
        "fits, but has just interrupted this job; over its whole past, machines were "
    )


def test_the_past_of_a_pool_is_told_with_the_cost_that_the_table_has() -> None:
    """One figure in the reason and in the column Expected, which counts the speed of a GPU."""
    hardware = Hardware("H100", 1, 80, 26, 234)
    rare = Offer(A, hardware, 1_000_000, 3_000_000, "ec2", NOW, "test", hazard_factor=0.3)
    need = replace(NEED, gpu_choices=(parse_gpu_choice("H100"), parse_gpu_choice("V100")))
    [alone] = rank_offers([(rare, None)], need, NOW)
    assert "less often than usual there: an hour of training costs $1." in alone.why
    need = replace(need, alike=False)
    [compared] = rank_offers([(rare, None)], need, NOW)
    hour = round(hour_of_progress(rare, need) / work_speed(rare, need))
    assert f"there: what a V100 does in an hour costs {format_usd(hour)}" in compared.why
    assert hour < 500_000
