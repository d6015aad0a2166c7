"""What it costs to bring a checkpoint elsewhere, and that it counts when a pool is chosen."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain.billing.egress import (
    Region,
    Restore,
    added_microusd_per_hour,
    bucket_of,
    cost_microusd,
    price_to,
)
from app.domain.market.gpu_choice import GpuChoice
from app.domain.market.offer import Hardware, Market, Offer, Pool
from app.domain.placement.placement import Need, RankedOffer, rank_offers

NOW = datetime(2026, 3, 1, tzinfo=UTC)
GB = 2**30
V100 = Hardware("V100", 1, 16, 8, 61)


def pool(provider: str, region: str) -> Pool:
    return Pool(provider, region, f"{region}a", "p3", Market.SPOT)


def offer(where: Pool, price: int) -> Offer:
    return Offer(where, V100, price, 10_000_000, "ec2", NOW, "list")


@pytest.mark.parametrize(
    ("place", "where", "microusd_per_gb"),
    [
        (Region("aws", "us-east-1"), pool("aws", "us-east-1"), 0),
        (Region("aws", "us-east-1"), pool("aws", "us-east-2"), 10_000),
        (Region("aws", "us-east-1"), pool("aws", "us-west-2"), 20_000),
        (Region("aws", "eu-west-1"), pool("aws", "us-east-1"), 20_000),
        (Region("aws", "ap-south-1"), pool("aws", "us-east-1"), 86_000),
        (Region("aws", "ap-northeast-1"), pool("aws", "us-east-1"), 90_000),
        (Region("aws", "us-east-1"), pool("gcp", "us-central1"), 90_000),
        (Region("aws", "xx-new-1"), pool("gcp", "us-central1"), 154_000),
        (Region("gcp", "us-central1"), pool("gcp", "us-central1"), 0),
        (Region("gcp", "us-central1"), pool("gcp", "us-east4"), 20_000),
        (Region("gcp", "us"), pool("gcp", "us-east4"), 20_000),
        (Region("gcp", "nam4"), pool("gcp", "us-east4"), 20_000),
        (Region("gcp", "us-central1"), pool("gcp", "europe-west4"), 50_000),
        (Region("gcp", "asia-east1"), pool("gcp", "us-central1"), 80_000),
        (Region("gcp", "us-central1"), pool("gcp", "australia-southeast1"), 100_000),
        (Region("gcp", "us-central1"), pool("aws", "us-east-1"), 120_000),
        (Region("aws", "us-east-1"), pool("local", "us-west-2"), 0),
    ],
)
def test_a_gigabyte_costs_by_where_it_goes(
    place: Region, where: Pool, microusd_per_gb: int
) -> None:
    assert price_to(place, where) == microusd_per_gb


def test_buckets_are_told_by_their_addresses() -> None:
    assert bucket_of("s3://acme/ckpt/x") == "s3://acme"
    assert bucket_of("gs://acme") == "gs://acme"
    assert bucket_of("file:///srv/checkpoints") is None


def test_costs_are_rounded_up_and_nothing_costs_nothing() -> None:
    assert cost_microusd(GB, 20_000) == 20_000
    assert cost_microusd(1, 20_000) == 1
    assert added_microusd_per_hour(None, pool("aws", "us-east-1")) == 0
    assert added_microusd_per_hour(Restore(GB, None), pool("aws", "us-east-1")) == 0


def ranked(restore: Restore | None, *offers: Offer) -> tuple[RankedOffer, ...]:
    need = Need((GpuChoice("V100", None, 1),), 0, 1, Market.SPOT, (), 1.0, restore=restore)
    return rank_offers([(one, None) for one in offers], need, NOW)


NEAR, FAR = pool("aws", "us-east-1"), pool("aws", "us-west-2")
BUCKET = Region("aws", "us-east-1")


def test_a_slightly_cheaper_pool_far_from_the_checkpoint_loses_and_says_why() -> None:
    near, far = offer(NEAR, 1_000_000), offer(FAR, 900_000)
    assert [item.offer.pool for item in ranked(None, near, far)] == [FAR, NEAR]
    found = ranked(Restore(8 * GB, BUCKET), near, far)
    assert [item.offer.pool for item in found] == [NEAR, FAR]
    assert found[0].why == "fits, has capacity for 1"
    assert found[1].why == (
        "fits, has capacity for 1; $0.16 more for bringing the checkpoint of 8.0 GiB "
        "from aws us-east-1"
    )
    # Clearly cheaper, it wins all the same.
    assert ranked(Restore(8 * GB, BUCKET), near, offer(FAR, 800_000))[0].offer.pool == FAR


def test_a_bucket_that_is_nowhere_known_is_said_and_changes_no_order() -> None:
    near, far = offer(NEAR, 1_000_000), offer(FAR, 900_000)
    found = ranked(Restore(8 * GB, None), near, far)
    assert [item.offer.pool for item in found] == [FAR, NEAR]
    assert "is not priced: where its bucket is, is unknown" in found[0].why


REGIONS = ("us-east-1", "us-east-2", "us-west-2", "eu-west-1", "ap-south-1")


@settings(deadline=None)
@given(
    prices=st.lists(st.integers(1, 5_000_000), min_size=2, max_size=5),
    size=st.integers(0, 2_000 * GB),
    bucket=st.sampled_from(REGIONS),
    chosen=st.integers(0, 4),
    dearer=st.integers(0, 3_000_000),
    farther=st.integers(0, 500 * GB),
)
def test_raising_an_offers_price_or_its_egress_never_makes_it_win(
    prices: list[int], size: int, bucket: str, chosen: int, dearer: int, farther: int
) -> None:
    offers = [offer(pool("aws", REGIONS[i]), price) for i, price in enumerate(prices)]
    place = chosen % len(offers)
    restore = Restore(size, Region("aws", bucket))

    def rank(candidates: list[Offer], brought: Restore) -> int:
        found = [item.offer.pool for item in ranked(brought, *candidates)]
        return found.index(offers[place].pool)

    before = rank(offers, restore)
    raised = list(offers)
    raised[place] = replace(raised[place], price_microusd_per_hour=prices[place] + dearer)
    assert rank(raised, restore) >= before
    # More to bring moves a pool with the dearest way back, never forward.
    ways = [price_to(Region("aws", bucket), one.pool) for one in offers]
    if ways[place] == max(ways):
        assert rank(offers, Restore(size + farther, Region("aws", bucket))) >= before
