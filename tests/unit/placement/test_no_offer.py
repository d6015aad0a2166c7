"""Why a job waits: the sentence names what no pool has, and otherwise the nearest miss."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.domain.market.gpu_choice import GpuChoice, parse_gpu_choice
from app.domain.market.machine_need import MachineNeed
from app.domain.market.offer import Hardware, Market, Offer, Pool
from app.domain.placement.no_offer import docker_settings, what_all_lack, why_none_fits
from app.domain.placement.placement import Need, PlacementDomain, bids_for_best_region, rank_offers
from app.domain.placement.placement_reasons import PlacementOutcome, unblocked_by
from app.domain.spec.infra_choice import InfraChoice

NOW = datetime(2026, 3, 1, tzinfo=UTC)
NEED = Need((parse_gpu_choice("V100"),), 0, 4, Market.SPOT, (), 0.9)


def offer(zone: str = "us-west-2a", gpu: str = "V100", **other: Any) -> Offer:
    found = Offer(
        pool=Pool("local", zone[:-1], zone, "p3.2xlarge", Market.SPOT),
        hardware=Hardware(gpu, 1, 16, 8, 61),
        price_microusd_per_hour=900_000,
        on_demand_microusd_per_hour=3_000_000,
        cloud="aws",
        quoted_at=NOW,
        price_source="test",
        available=2,
        billing_speed=1,
    )
    return replace(found, **other)


OFFERS = [
    (offer(), None),
    (offer("us-east-1c", available=3), None),
    (offer("us-east-1d", price_microusd_per_hour=2_900_000, available=9), None),
    (offer("us-east-1e", "H100", available=9), None),
]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            {"infra": (InfraChoice("aws"),)},
            "this deployment rents nothing in aws; it has pools at local only",
        ),
        (
            {"gpu_choices": (GpuChoice("H9000"),)},
            "no pool has 1 × H9000; there are 1 × H100 16 GB, 1 × V100 16 GB",
        ),
        (
            {"gpu_choices": (), "gpu_memory_gb_min": 80},
            "no pool has a GPU with 80 GB; there are 1 × H100 16 GB, 1 × V100 16 GB",
        ),
        (
            {"market": Market.ON_DEMAND},
            "no on-demand pool has 1 × V100; another market has it",
        ),
        (
            {"domain": PlacementDomain("local", "eu", "eu-a", "p3.2xlarge")},
            "no spot pool is in the zone of the job's other machines",
        ),
        (
            {},
            "no suitable pool has 4 free machines; of 3 pools, us-east-1c (p3.2xlarge) has most: 3",
        ),
        (
            {"max_price_ratio": 0.01, "infra": (InfraChoice("local", "us-east-1", "us-east-1d"),)},
            "the only suitable pool, us-east-1d (p3.2xlarge): costs 97 % of on-demand, above the "
            "limit of 1 %",
        ),
    ],
)
def test_the_first_thing_that_no_pool_has_is_named(change: dict[str, object], told: str):
    need = replace(NEED, **change)  # type: ignore[arg-type]
    assert why_none_fits(rank_offers(OFFERS, need, NOW), need) == told


def test_a_pool_that_cools_down_is_nearer_than_a_full_one():
    need = replace(NEED, count=3)
    offers = [(offer(), None), (offer("us-east-1c", available=3), NOW + timedelta(minutes=2))]
    told = why_none_fits(rank_offers(offers, need, NOW), need)
    assert told.endswith(
        "the first that may be asked again, us-east-1c (p3.2xlarge): cooling down until 00:02:00 "
        "UTC"
    )


@pytest.mark.parametrize(
    ("change", "told"),
    [
        # Each way to be near, with the figure that it is told by.
        ({"available": 0}, "; 3 pools, such as us-west-2a (p3.2xlarge), have none"),
        ({"available": 2}, "; of 3 pools, us-west-2a (p3.2xlarge) has most: 2"),
        (
            {"quoted_at": NOW - timedelta(days=2)},
            "the one with the newest price, us-west-2a (p3.2xlarge): its price is from 2026-02-27 "
            "00:00:00 UTC, 2d old: too old to act on (the limit is 1d)",
        ),
    ],
)
def test_the_nearest_pool_stays_the_same_while_its_figure_does(change: dict[str, Any], told: str):
    """Prices move at each look, and the pools come in their order."""
    spot = replace(NEED, quote_age_max=timedelta(days=1))
    zones = ("us-west-2a", "us-west-2b", "us-west-2c")
    for prices in itertools.permutations((900_000, 1_000_000, 1_100_000)):
        offers = [
            (offer(zone, price_microusd_per_hour=price, **change), None)
            for zone, price in zip(zones, prices, strict=True)
        ]
        considered = rank_offers(offers, spot, NOW)
        assert why_none_fits(considered, spot).endswith(told)
        unblock = unblocked_by(PlacementOutcome(considered, spot, (), None))
        assert unblock is not None
        assert "us-west-2a" in unblock.sentence


def test_of_pools_too_dear_the_same_is_named_while_no_percent_tells_them_apart():
    need = replace(NEED, max_price_ratio=0.2, count=1)
    for one, other in ((900_000, 903_000), (903_000, 900_000)):
        prices = {"us-west-2a": one, "us-west-2b": other}
        pools = [(offer(at, price_microusd_per_hour=price), None) for at, price in prices.items()]
        assert why_none_fits(rank_offers(pools, need, NOW), need).endswith(
            "the cheapest against on-demand, us-west-2a (p3.2xlarge): costs 30 % of on-demand, "
            "above the limit of 20 %"
        )


def test_the_nearest_of_pools_that_are_too_dear_is_the_cheapest():
    """However much room a dearer one has."""
    need = replace(NEED, max_price_ratio=0.2, count=1)
    offers = [(offer(), None), (offer("us-east-1d", price_microusd_per_hour=930_000), None)]
    offers[1] = (replace(offers[1][0], available=9), None)
    told = why_none_fits(rank_offers(offers, need, NOW), need)
    assert told.endswith("costs 30 % of on-demand, above the limit of 20 %")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"infra": (InfraChoice("aws"),)}, "infra"),
        ({"types": ("g5.xlarge",)}, "instance_types"),
        ({"gpu_choices": (GpuChoice("H9000"),)}, "resources"),
        ({"market": Market.ON_DEMAND}, "market"),
        # Full, too dear, or not beside the job's other machines: that may pass.
        ({}, None),
        ({"max_price_ratio": 0.01}, None),
        ({"domain": PlacementDomain("local", "eu", "eu-a", "p3.2xlarge")}, None),
    ],
)
def test_what_no_wait_changes_is_told_apart_with_its_field(
    change: dict[str, object], field: str | None
):
    need = replace(NEED, **change)  # type: ignore[arg-type]
    lack = what_all_lack(rank_offers(OFFERS, need, NOW), need)
    assert (None if lack is None else lack.field) == field
    assert what_all_lack((), need) is None, "prices may still come"


def test_without_a_price_nothing_is_known():
    assert why_none_fits((), NEED) == "no prices are known yet for any pool"


def test_a_price_that_is_too_old_is_refused_with_its_age_and_the_limit() -> None:
    quoted_at = NOW - timedelta(hours=3, minutes=30)
    old = [(offer(available=9, quoted_at=quoted_at), None)]
    assert rank_offers(old, NEED, NOW)[0].fits
    strict = replace(NEED, quote_age_max=timedelta(hours=2))
    told = why_none_fits(rank_offers(old, strict, NOW), strict)
    assert told.endswith(
        "its price is from 2026-02-28 20:30:00 UTC, 3h 30m old: too old to act on (the limit is 2h)"
    )


def test_no_choice_depends_on_the_sentence_of_a_verdict() -> None:
    need = replace(NEED, last_choice=frozenset({offer().pool}), count=1)
    judged = rank_offers([(offer(), None), (offer("us-east-1c", available=3), None)], need, NOW)
    reworded = [replace(item, why="in other words") for item in judged]
    assert bids_for_best_region(reworded) == bids_for_best_region(judged) != ()
    full = rank_offers(OFFERS, NEED, NOW)
    reworded = [replace(item, why="in other words") for item in full]
    assert why_none_fits(reworded, NEED) == why_none_fits(full, NEED)
    rests = [(offer("us-east-1c", available=3), NOW + timedelta(minutes=2)), (offer(), None)]
    for need in (replace(NEED, count=3), replace(NEED, max_price_ratio=0.2, count=1)):
        waits = rank_offers(rests, need, NOW)
        outcome = PlacementOutcome(waits, need, (), None)
        found = unblocked_by(outcome)
        assert found is not None
        reworded = [replace(item, why="in other words") for item in waits]
        assert unblocked_by(replace(outcome, considered=reworded)) == found


def without_docker(provider: str = "gcp", **other: Any) -> Offer:
    there = offer(available=9, **other)
    hardware = replace(there.hardware, containers=False)
    return replace(there, pool=replace(there.pool, provider=provider), hardware=hardware)


def test_a_job_with_an_image_fits_no_machine_without_docker_and_is_told_what_to_set() -> None:
    need = replace(NEED, machine=MachineNeed(containers=True))
    bare = [(without_docker(), None), (without_docker("aws"), None)]
    assert rank_offers(bare, replace(NEED, count=1), NOW)[0].fits
    judged = rank_offers(bare, need, NOW)
    assert [item.fits for item in judged] == [False, False]
    assert {item.why for item in judged} == {
        "boots a machine image without docker: name one with docker in LOWTIDE_AWS_IMAGE",
        "boots a machine image without docker: name one with docker in LOWTIDE_GCP_IMAGE",
    }
    assert why_none_fits(judged, need) == (
        "the machine images there have no docker, which the job's `image` needs: name an image "
        "with docker in LOWTIDE_AWS_IMAGE or LOWTIDE_GCP_IMAGE"
    )
    at_one = replace(need, infra=(InfraChoice("gcp"),))
    assert docker_settings([pool for pool, _ in bare], at_one) == "LOWTIDE_GCP_IMAGE"


def test_docker_is_no_matter_where_another_pool_has_it_or_lacks_more() -> None:
    need = replace(NEED, machine=MachineNeed(containers=True))
    with_it = offer(available=9)
    assert docker_settings([without_docker(), with_it], need) is None
    assert docker_settings([without_docker(), with_it], NEED) is None
    judged = rank_offers([(without_docker(), None), (with_it, None)], need, NOW)
    assert [item.offer.pool.provider for item in judged if item.fits] == ["local"]
    small = replace(need, machine=MachineNeed(vcpus=64, containers=True))
    assert docker_settings([without_docker()], small) is None
    told = why_none_fits(rank_offers([(without_docker(), None)], small, NOW), small)
    assert told == "no pool has 1 × V100 with 64+ CPUs, docker; there are 1 × V100 16 GB"
