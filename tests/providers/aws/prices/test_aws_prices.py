"""Prices, quotas and scores read from the fake account."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from app.adapters.providers.aws.machines.quotas import quota_name, read_quotas
from app.adapters.providers.aws.prices.on_demand_prices import OnDemandPrices, shipped_prices
from app.adapters.providers.aws.prices.placement_scores import placement_scores
from app.adapters.providers.aws.prices.price_source import AwsPriceSource
from app.adapters.providers.machine_catalog import shipped_catalog
from app.domain.market.offer import Market
from app.ports.cloud_provider import ProviderError, RefusalKind
from tests.support.aws.aws_fake import AwsFake
from tests.support.aws.aws_fake_json import PRICED_AT
from tests.support.aws.aws_parts import aws_pool, provider_for, settings_for
from tests.support.aws.aws_world import TYPES, AwsWorld, Rented, now


@pytest.fixture
def prices(fake: AwsFake) -> AwsPriceSource:
    provider = provider_for(fake)
    return AwsPriceSource(
        settings_for(fake), provider.clients, provider.facts, shipped_catalog("aws")
    )


def test_offers_are_whole(fake: AwsFake, prices: AwsPriceSource) -> None:
    fake.world.set_price("g5.xlarge", "us-east-1b", 444_400, now() - timedelta(minutes=5))
    fake.world.set_price("g5.xlarge", "us-east-1b", 555_500, now() + timedelta(minutes=5))
    offers = prices.offers()
    assert [offer.pool for offer in offers] == sorted(offer.pool for offer in offers)
    by_pool = {offer.pool: offer for offer in offers}
    assert len(by_pool) == len(offers) == len(TYPES) * 6 * 2
    spot = by_pool[aws_pool("us-east-1b")]
    assert (spot.price_microusd_per_hour, spot.on_demand_microusd_per_hour) == (444_400, 1_006_000)
    assert (spot.cloud, spot.available, spot.hardware.gpu_name) == ("ec2", None, "A10G")
    assert spot.price_source == "DescribeSpotPriceHistory"
    listed = by_pool[aws_pool("us-east-1b", market=Market.ON_DEMAND)]
    assert listed.price_microusd_per_hour == 1_006_000
    assert listed.price_source == f"price list of {PRICED_AT:%Y-%m-%d}"
    assert by_pool[aws_pool("us-west-2c", "p5.48xlarge")].hardware.gpu_count == 8


def test_only_zones_with_a_subnet_and_types_that_are_sold_are_offered(fake: AwsFake) -> None:
    fake.world.offered.discard(("g6.xlarge", "us-east-1a"))
    (subnet,) = [
        one.id
        for one in fake.records("us-east-1").describe_subnets()
        if one.availability_zone == "us-east-1a"
    ]
    settings = {"regions": ("us-east-1",), "subnet_ids": (subnet,)}
    provider = provider_for(fake, **settings)
    source = AwsPriceSource(
        settings_for(fake, **settings), provider.clients, provider.facts, shipped_catalog("aws")
    )
    offers = source.offers()
    assert {offer.pool.zone for offer in offers} == {"us-east-1a"}
    assert {offer.pool.instance_type for offer in offers} == set(TYPES) - {"g6.xlarge"}


def test_history_has_every_step_and_the_one_before(fake: AwsFake, prices: AwsPriceSource) -> None:
    fake.world.page_size = 7
    prices.changes_since(now())  # the first look of a process goes a day back
    fake.price_steps("g5.xlarge", "us-east-1a", (7_200, 300_000), (1_800, 310_000), (60, 290_000))
    changes = prices.changes_since(now() - timedelta(hours=1))
    mine = [one for one in changes if one.pool == aws_pool()]
    assert [one.microusd_per_hour for one in mine] == [300_000, 310_000, 290_000]
    assert mine[0].at < now() - timedelta(hours=1) < mine[1].at < mine[2].at
    assert list(changes) == sorted(changes, key=lambda one: (one.pool, one.at))
    on_demand = [one for one in changes if one.pool == aws_pool(market=Market.ON_DEMAND)]
    assert [(one.at, one.microusd_per_hour) for one in on_demand] == [(PRICED_AT, 1_006_000)]


def test_history_goes_back_ninety_days_and_no_further(
    fake: AwsFake, prices: AwsPriceSource
) -> None:
    fake.price_steps(
        "g5.xlarge", "us-east-1a", *((day * 86_400, 300_000 + day) for day in range(119, 0, -1))
    )
    changes = prices.changes_since(now() - timedelta(days=365))
    mine = [one for one in changes if one.pool == aws_pool()]
    assert [one.microusd_per_hour - 300_000 for one in mine] == list(range(90, 0, -1))


def test_a_look_that_no_region_answers_fails(fake: AwsFake, prices: AwsPriceSource) -> None:
    fake.fail("DescribeSpotPriceHistory", "RequestLimitExceeded", 503, times=4)
    with pytest.raises(ProviderError) as refused:
        prices.offers()
    assert refused.value.kind is RefusalKind.THROTTLED


def test_the_shipped_list_stands_in_for_a_price_list_that_is_denied(fake: AwsFake) -> None:
    listed = OnDemandPrices(provider_for(fake).clients)
    fake.fail("GetProducts", "AccessDeniedException", times=1)
    prices = listed.of("us-east-1")
    assert prices["p5.48xlarge"].microusd_per_hour == 55_040_000
    assert prices["p5.48xlarge"].source.startswith("shipped list of ")
    asked = fake.world.calls["GetProducts"]
    assert listed.of("us-east-1") == prices
    assert fake.world.calls["GetProducts"] == asked  # kept, not asked again at once
    fake.fail("GetProducts", "AccessDeniedException", times=1)
    assert listed.of("ap-south-1") == {}


def test_the_price_list_is_asked_once_and_read_to_its_end(fake: AwsFake) -> None:
    listed = OnDemandPrices(provider_for(fake).clients)
    prices = listed.of("eu-west-1")
    assert {name: one.microusd_per_hour for name, one in prices.items()} == {
        name: price for name, (price, _, _) in TYPES.items()
    }
    assert fake.world.calls["GetProducts"] == 3
    listed.of("eu-west-1")
    assert fake.world.calls["GetProducts"] == 3


def test_the_shipped_list_is_dated_and_about_types_we_know() -> None:
    prices = shipped_prices("us-west-2")
    assert datetime(2025, 1, 1, tzinfo=UTC) < prices["g5.xlarge"].effective_at < datetime.now(UTC)
    known = {one.name for one in shipped_catalog("aws").types}
    assert set(prices) <= known
    assert all(100_000 < one.microusd_per_hour < 200_000_000 for one in prices.values())
    assert shipped_prices("mars-1") == {}


def test_quotas_are_read_by_name(fake: AwsFake) -> None:
    fake.world.quotas["P5", True] = 384
    found = {
        quota.name: quota.vcpus for quota in read_quotas(provider_for(fake).clients, "us-east-1")
    }
    assert found["All P5 Spot Instance Requests"] == 384
    assert found["All G and VT Spot Instance Requests"] == 0
    assert len(found) == 5


@pytest.mark.parametrize(
    ("instance_type", "market", "name"),
    [
        ("g5.xlarge", Market.SPOT, "All G and VT Spot Instance Requests"),
        ("g6e.xlarge", Market.SPOT, "All G and VT Spot Instance Requests"),
        ("gr6.4xlarge", Market.SPOT, "All G and VT Spot Instance Requests"),
        ("p4de.24xlarge", Market.SPOT, "All P4, P3 and P2 Spot Instance Requests"),
        ("p3dn.24xlarge", Market.SPOT, "All P4, P3 and P2 Spot Instance Requests"),
        ("p5en.48xlarge", Market.SPOT, "All P5 Spot Instance Requests"),
        ("p5.4xlarge", Market.ON_DEMAND, "Running On-Demand P instances"),
        ("g5.xlarge", Market.ON_DEMAND, "Running On-Demand G and VT instances"),
        ("p6-b200.48xlarge", Market.SPOT, ""),
        ("p6-b200.48xlarge", Market.ON_DEMAND, "Running On-Demand P instances"),
    ],
)
def test_which_quota_a_type_counts_against(instance_type: str, market: Market, name: str) -> None:
    machine = shipped_catalog("aws").get(instance_type)
    assert machine is not None
    assert quota_name(machine, market) == name


def test_every_type_of_the_catalog_has_a_quota_but_where_no_document_tells() -> None:
    for one in shipped_catalog("aws").types:
        assert bool(quota_name(one, Market.SPOT)) != one.name.startswith("p6"), one.name
        assert quota_name(one, Market.ON_DEMAND), one.name


def test_placement_scores_are_shown(fake: AwsFake) -> None:
    clients = provider_for(fake).clients
    types = ("g5.xlarge", "g6.xlarge", "g6e.xlarge")
    regions = ("us-east-1", "us-west-2")
    assert placement_scores(clients, regions, types, 8) == {"us-east-1": 7, "us-west-2": 6}


def test_the_fake_charges_the_minimum_at_the_price_of_the_end() -> None:
    world, begin = AwsWorld(), now()
    world.set_price("g5.xlarge", "us-east-1b", 3_600_000, begin - timedelta(hours=1))
    world.set_price("g5.xlarge", "us-east-1b", 7_200_000, begin + timedelta(seconds=10))
    world.set_price("g5.xlarge", "us-east-1b", 36_000_000, begin + timedelta(seconds=30))
    world.machines["i-1"] = Rented(
        "i-1", "us-east-1", "us-east-1b", "g5.xlarge", True, begin,
        ended_at=begin + timedelta(seconds=25),
    )  # fmt: skip
    assert world.compute_bill() == {"i-1": 10 * 1_000 + 50 * 2_000}


def test_products_that_cannot_be_read_are_left_out(
    fake: AwsFake, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = fake.answer

    def spoilt(*asked: object) -> object:
        status, headers, body = answered(*asked)  # type: ignore[arg-type]
        if asked[1] == "pricing":
            page = json.loads(body)
            page["PriceList"] = ["{", json.dumps({"product": {}}), "null", *page["PriceList"]]
            body = json.dumps(page).encode()
        return status, headers, body

    monkeypatch.setattr(fake, "answer", spoilt)
    assert set(OnDemandPrices(provider_for(fake).clients).of("eu-west-1")) == set(TYPES)
