"""Prices: the sum of SKUs, their past, and what is shipped for when neither can be had."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import pytest
from google.auth.credentials import AnonymousCredentials

from app.adapters.providers.gcp.client.compute_api import ComputeApi
from app.adapters.providers.gcp.prices.price_data import price_data
from app.adapters.providers.gcp.prices.price_source import GcpPriceSource
from app.adapters.providers.gcp.prices.sku_catalog import read_unit_prices
from app.adapters.providers.machine_catalog import shipped_catalog
from app.domain.market.offer import Market, Offer, Pool
from app.ports.cloud_provider import ProviderError, RefusalKind
from tests.providers.gcp.gcp_under_test import a_pool, gcp_settings
from tests.support.gce.gce_fake import FakeGce, LineFault
from tests.support.gce.gce_fake_prices import START

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
SPOT, ON_DEMAND = a_pool(), a_pool(market=Market.ON_DEMAND)
# 12 cores, 85 GB and one GPU at the fake's prices, by hand.
SPOT_MICROUSD = round((12 * 15_806_000 + 85 * 2_118_000 + 1_466_954_000) / 1_000)
ON_DEMAND_MICROUSD = round((12 * 31_611_000 + 85 * 4_237_000 + 2_933_908_000) / 1_000)


class Clock:
    """A time that the test sets."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now


def source(gce: FakeGce, clock: Clock | None = None, **changes: Any) -> GcpPriceSource:
    api = ComputeApi(gcp_settings(gce, **changes), AnonymousCredentials())
    return GcpPriceSource(api, shipped_catalog("gcp"), clock or Clock())


def by_pool(offers: tuple[Offer, ...]) -> dict[Pool, Offer]:
    return {offer.pool: offer for offer in offers}


def test_a_machine_costs_the_sum_of_its_parts(gce: FakeGce) -> None:
    offers = source(gce).offers()
    assert list(offers) == sorted(offers, key=lambda offer: offer.pool)
    found = by_pool(offers)
    spot, full = found[SPOT], found[ON_DEMAND]
    assert (spot.price_microusd_per_hour, full.price_microusd_per_hour) == (
        SPOT_MICROUSD,
        ON_DEMAND_MICROUSD,
    )
    assert spot.on_demand_microusd_per_hour == ON_DEMAND_MICROUSD
    assert (spot.cloud, spot.price_source, spot.quoted_at) == ("gce", "gcp-billing-catalog", NOW)
    assert spot.hardware.gpu_name == "A100"
    zones = {pool.zone for pool in found if pool.instance_type == SPOT.instance_type}
    assert zones == {f"us-central1-{letter}" for letter in "abc"} | {
        "europe-west4-a",
        "europe-west4-b",
    }
    assert len(gce.calls(r"GET /v1/services/")) == 4  # five SKUs a page


def test_offers_say_that_the_default_image_brings_no_docker(gce: FakeGce) -> None:
    assert not by_pool(source(gce).offers())[SPOT].hardware.containers
    assert by_pool(source(gce, image="own").offers())[SPOT].hardware.containers


def test_only_configured_zones_and_types_that_they_have_are_offered(gce: FakeGce) -> None:
    gce.engine.world.machine_types = ("g2-standard-8", "n1-standard-8")
    gce.engine.world.accelerators = (("us-central1-b", "nvidia-tesla-t4"),)
    zones = ("us-central1-a", "us-central1-b")
    found = by_pool(source(gce, regions=("us-central1",), zones=zones).offers())
    assert {pool.zone for pool in found} == set(zones)
    assert {pool.instance_type for pool in found} == {"g2-standard-8", "n1-standard-8-t4x1"}
    assert {pool.zone for pool in found if "t4" in pool.instance_type} == {"us-central1-b"}


def test_a_part_without_a_price_means_the_shipped_price_with_its_date(gce: FakeGce) -> None:
    found = by_pool(source(gce).offers())
    offer = found[a_pool("europe-west4-a", Market.ON_DEMAND)]
    assert offer.price_source == f"shipped-{price_data().as_of:%Y-%m-%d}"
    # us-central1: $3.673385; the region's factor is 1.11.
    assert offer.price_microusd_per_hour == pytest.approx(3_673_385 * 1.11, rel=1e-4)
    gce.prices.rows = [row for row in gce.prices.rows if "A100 GPU" not in row[0]]
    assert by_pool(source(gce).offers())[SPOT].price_source.startswith("shipped-")


def test_without_the_catalogue_there_are_shipped_prices_and_a_reason(gce: FakeGce) -> None:
    gce.faults.append(LineFault(r"GET /v1/services", 9, 403, "forbidden", "disabled"))
    prices = source(gce)
    assert {offer.price_source[:8] for offer in prices.offers()} == {"shipped-"}
    assert prices.problem is not None
    assert prices.problem.kind is RefusalKind.DENIED
    assert "Cloud Billing API" in str(prices.problem)


def test_without_the_zones_types_there_is_an_error(gce: FakeGce) -> None:
    gce.faults.append(LineFault(r"GET .*/aggregated/machineTypes", 99, 403, "forbidden", "no"))
    with pytest.raises(ProviderError) as failed:
        source(gce).offers()
    assert failed.value.kind is RefusalKind.DENIED


def test_the_past_of_a_spot_price_comes_from_the_advice(gce: FakeGce) -> None:
    steps = [(START - timedelta(days=days), nanos * 1_000) for days, nanos in
             ((60, 1_500_000), (30, 1_700_000), (10, 1_700_000))]  # fmt: skip
    gce.prices.history["us-central1", SPOT.instance_type] = steps
    gce.prices.preemption_rates["us-central1", SPOT.instance_type] = 0.25
    prices = source(gce)
    prices.offers()
    changes = [
        change for change in prices.changes_since(START - timedelta(days=40)) if change.pool == SPOT
    ]
    assert [(change.at, change.microusd_per_hour) for change in changes] == [
        (steps[0][0], 1_500_000),
        (steps[1][0], 1_700_000),
        (START, SPOT_MICROUSD),
    ]


def test_the_past_and_the_preemption_rates_are_told_for_each_pool(gce: FakeGce) -> None:
    steps = [(START - timedelta(days=days), nanos * 1_000) for days, nanos in
             ((60, 1_500_000), (30, 1_700_000))]  # fmt: skip
    gce.prices.history["us-central1", SPOT.instance_type] = steps
    gce.prices.preemption_rates["us-central1", SPOT.instance_type] = 0.25
    prices = source(gce)
    other_zone = a_pool("us-central1-b")
    asked = len([one for one in gce.requests if "capacityHistory" in str(one)])
    (here, there) = prices.past_of([SPOT, other_zone], START - timedelta(days=90))
    assert (here.pool, there.pool) == (SPOT, other_zone)
    assert [price for _, price in here.steps] == [1_500_000, 1_700_000]
    assert [one.rate for one in there.preemptions] == [0.25]
    prices.past_of([SPOT], START - timedelta(days=90))
    again = len([one for one in gce.requests if "capacityHistory" in str(one)])
    assert again == asked + 1, "one type in one region is asked about once a day"
    gce.prices.history["us-central1", SPOT.instance_type] = [(START, -5_000)]
    fresh = source(gce)
    (told,) = fresh.past_of([SPOT], START - timedelta(days=90))
    assert told.steps == (), "a negative price is none"


def test_a_new_price_is_a_step_from_when_google_says(gce: FakeGce) -> None:
    clock = Clock()
    prices = source(gce, clock)
    prices.offers()
    gce.prices.effective_at = NOW + timedelta(minutes=10)
    gce.prices.rows = [
        (text, usage, regions, nanos // 2 if usage == "Preemptible" else nanos)
        for text, usage, regions, nanos in gce.prices.rows
    ]
    assert by_pool(prices.offers())[SPOT].price_microusd_per_hour == SPOT_MICROUSD
    clock.now = NOW + timedelta(hours=1)
    assert by_pool(prices.offers())[SPOT].price_microusd_per_hour == round(SPOT_MICROUSD / 2)
    changes = [one for one in prices.changes_since(NOW) if one.pool == SPOT]
    assert [one.at for one in changes] == [START, NOW + timedelta(minutes=10)]
    assert [one.at for one in prices.changes_since(clock.now) if one.pool == SPOT] == [
        NOW + timedelta(minutes=10)
    ]


def test_prices_are_asked_for_by_the_hour(gce: FakeGce) -> None:
    clock = Clock()
    prices = source(gce, clock)
    prices.offers()
    asked = len(gce.requests)
    clock.now += timedelta(minutes=59)
    prices.changes_since(NOW)
    assert len(gce.requests) == asked
    clock.now += timedelta(minutes=1)
    assert prices.offers()[0].quoted_at == clock.now
    assert len(gce.requests) > asked


def test_a_type_with_local_disks_is_billed_for_them_too() -> None:
    kind = shipped_catalog("gcp").get("a2-ultragpu-1g")
    assert kind is not None
    parts = price_data().parts(kind)
    assert parts is not None
    assert [(part.sku, part.quantity) for part in parts] == [
        ("A2 Instance Core", 12),
        ("A2 Instance Ram", 170),
        ("Nvidia Tesla A100 80GB GPU", 1),
        ("SSD backed Local Storage", 375),
    ]
    on_demand = price_data().fallback_usd(kind, "us-central1", Market.ON_DEMAND)
    assert on_demand == pytest.approx(5.0688, abs=0.01)  # Google's list price


def test_monthly_units_and_timelines_of_prices_are_read(gce: FakeGce) -> None:
    row = ("SSD backed Local Storage attached to Spot Preemptible VMs", "Preemptible",
           ("us-central1",), 73_000_000)  # fmt: skip
    gce.prices.rows = [row]
    sku = gce.prices.skus

    def timeline(service: str, query: dict[str, str]) -> Any:
        page = sku(service, query)
        (info,) = page["skus"][0]["pricingInfo"]
        info["pricingExpression"]["usageUnit"] = "GiBy.mo"
        later = {**info, "effectiveTime": "2030-01-01T00:00:00Z"}
        page["skus"][0]["pricingInfo"] = [info, later]
        return page

    gce.prices.skus = timeline  # type: ignore[method-assign]
    api = ComputeApi(gcp_settings(gce), AnonymousCredentials())
    (unit,) = read_unit_prices(api, price_data(), NOW)
    assert unit.microusd_per_hour == Fraction(100), "$0.073 over 730 hours"
    assert unit.effective_at == START
    assert unit.market is Market.SPOT


def test_every_type_of_the_catalog_has_its_parts() -> None:
    for kind in shipped_catalog("gcp").types:
        assert price_data().parts(kind) is not None, kind.name


def test_an_unknown_price_is_none_and_never_zero(gce: FakeGce) -> None:
    prices = source(gce)
    assert prices.price_of(SPOT) is None
    prices.offers()
    assert prices.price_of(SPOT) == SPOT_MICROUSD
    assert prices.price_of(dataclasses.replace(SPOT, instance_type="x9-none")) is None
