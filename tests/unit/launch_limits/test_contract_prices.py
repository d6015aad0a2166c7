"""What a contract makes of list prices, and what its file may say."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from app.adapters.contract_check import contract_warnings
from app.adapters.contract_file import read_contract
from app.domain.launch_limits.contract_prices import (
    NO_CONTRACT,
    RentedMachines,
    parse_contract,
)
from app.domain.market.attachments import Attachments
from app.domain.market.offer import Hardware, Market, Offer, Pool
from app.domain.units.errors import SpecError
from app.settings import load_settings

NOW = datetime(2026, 3, 1, tzinfo=UTC)
SPOT = Pool("aws", "us-east-1", "us-east-1a", "p4d.24xlarge", Market.SPOT)
ON_DEMAND = replace(SPOT, market=Market.ON_DEMAND)
DISK = Attachments(100, 80_000, 5_000, "list", NOW)
A100 = Hardware("A100", 8, 40, 96, 1152)


def offer(pool: Pool, price: int = 10_000_001) -> Offer:
    return Offer(pool, A100, price, 32_772_600, "ec2", NOW, "list", attachments=DISK)


def test_without_a_contract_an_offer_is_what_is_listed():
    assert NO_CONTRACT.paid(offer(SPOT)) == offer(SPOT)
    other = parse_contract({"discounts": {"gcp": 10}})
    assert other.paid(offer(SPOT)) == offer(SPOT)


def test_a_discount_is_taken_off_machines_disks_and_addresses():
    contract = parse_contract({"discounts": {"aws": 12.5}})
    paid = contract.paid(offer(SPOT))
    assert paid.price_microusd_per_hour == 8_750_001  # of 8,750,000.875
    assert paid.on_demand_microusd_per_hour == 28_676_025
    assert paid.attachments is not None
    assert paid.attachments.disk_microusd_per_gb_month == 70_000
    assert paid.attachments.public_ip_microusd_per_hour == 4_375
    assert (paid.list_microusd_per_hour, paid.price_terms) == (10_000_001, "12.5 % off")


def test_markets_may_have_different_discounts():
    contract = parse_contract({"discounts": {"aws": {"on_demand": 20}}})
    paid = contract.paid(offer(SPOT))
    assert (paid.price_microusd_per_hour, paid.price_terms) == (10_000_001, None)
    assert paid.on_demand_microusd_per_hour == 26_218_080


def test_the_price_of_a_region_comes_before_that_of_a_type_and_both_before_a_discount():
    price = {"cloud": "aws", "instance_type": "p4d.24xlarge", "usd_per_hour": 20}
    near = {**price, "region": "us-east-1", "usd_per_hour": "21.50"}
    spot = {**price, "market": "spot", "usd_per_hour": 9}
    contract = parse_contract({"discounts": {"aws": 10}, "prices": [price, near, spot]})
    paid = contract.paid(offer(ON_DEMAND, 32_772_600))
    assert paid.price_microusd_per_hour == paid.on_demand_microusd_per_hour == 21_500_000
    assert paid.price_terms == "a price of its own of $21.50"
    elsewhere = replace(ON_DEMAND, region="us-west-2", zone="us-west-2a")
    assert contract.paid(offer(elsewhere)).price_microusd_per_hour == 20_000_000
    assert contract.paid(offer(SPOT)).price_microusd_per_hour == 9_000_000
    other = replace(ON_DEMAND, instance_type="p5.48xlarge")
    assert contract.paid(offer(other, 50_000_000)).price_microusd_per_hour == 45_000_000


def test_a_bid_is_compared_by_the_price_that_the_cloud_lists():
    paid = parse_contract({"discounts": {"aws": 20}}).paid(offer(SPOT, 10_000_000))
    assert paid.as_listed(8_000_000) == 10_000_000
    assert offer(SPOT).as_listed(8_000_000) == 8_000_000


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ([], "must be a mapping with discounts and prices"),
        ({"discount": {"aws": 1}}, "did you mean 'discounts'"),
        ({"discounts": 12}, "discounts: must be a mapping of clouds"),
        ({"discounts": {"aws": 100}}, "at least 0 and less than 100"),
        ({"discounts": {"aws": -1}}, "at least 0 and less than 100"),
        ({"discounts": {"aws": 1.234}}, "at most two decimals"),
        ({"discounts": {"aws": True}}, "must be a percentage like 12"),
        ({"discounts": {"amazon": 1}}, "'amazon' is not a cloud; use"),
        ({"discounts": {"aws": {"sport": 1}}}, "unknown field 'sport'"),
        ({"prices": [{"cloud": "aws", "usd_per_hour": 1}]}, "instance_type"),
        ({"prices": [{"cloud": "aws", "instance_type": "p", "usd_per_hour": -1}]}, "negative"),
        (
            {"prices": 2 * [{"cloud": "aws", "instance_type": "p", "usd_per_hour": 1}]},
            "aws/p/on_demand has two prices",
        ),
    ],
)
def test_a_wrong_contract_says_where_it_is_wrong(written: Any, told: str):
    with pytest.raises(SpecError) as refused:
        parse_contract(written)
    assert told in refused.value.message


def test_entries_that_no_machine_matches_are_told():
    contract = parse_contract(
        {
            "discounts": {"aws": 12, "gcp": 20},
            "prices": [
                {"cloud": "aws", "instance_type": "p4d.24xlarge", "usd_per_hour": 20},
                {"cloud": "aws", "instance_type": "p4d.24xlarg", "usd_per_hour": 20},
                {
                    "cloud": "aws", "instance_type": "p5.48xlarge", "region": "us-esst-1",
                    "usd_per_hour": 30,
                },
                {"cloud": "gcp", "instance_type": "a3-highgpu-8g", "usd_per_hour": 50},
                {"cloud": "local", "instance_type": "anything", "usd_per_hour": 1},
            ],
        }
    )  # fmt: skip
    types, regions = frozenset({"p4d.24xlarge", "p5.48xlarge"}), frozenset({"us-east-1"})
    rented = {"aws": RentedMachines(types, regions), "local": RentedMachines()}
    assert list(contract.unmatched(rented)) == [
        "discounts.gcp changes nothing: no machines are rented at gcp",
        "prices.1 changes nothing: aws has no machine type 'p4d.24xlarg' that is known; did you "
        "mean 'p4d.24xlarge'?",
        "prices.2 changes nothing: no machines are rented in the region 'us-esst-1' of aws; did "
        "you mean 'us-east-1'?",
        "prices.3 changes nothing: no machines are rented at gcp",
    ]


def test_the_settings_say_what_is_rented(tmp_path: Path):
    file = tmp_path / "contract.yaml"
    file.write_text(
        "discounts: {gcp: 5}\n"
        "prices: [{cloud: local, instance_type: p3.2xlarge, usd_per_hour: 1}]\n"
    )
    settings = load_settings(contract_prices=file, state_dir=tmp_path)
    assert contract_warnings(settings) == (
        "LOWTIDE_CONTRACT_PRICES: discounts.gcp changes nothing: no machines are rented at gcp",
    )


def test_the_file_is_named_by_a_whole_path_and_refused_with_a_reason(tmp_path: Path):
    file = tmp_path / "contract.yaml"
    file.write_text("discounts: {aws: 12}\n")
    assert read_contract(str(file)) == parse_contract({"discounts": {"aws": 12}})
    assert read_contract(NO_CONTRACT) is NO_CONTRACT
    for content, told in (
        (b"discounts: [", "the file: "),
        (b"\xff", "not UTF-8"),
        (b" " * 300_000, "more than 256 KiB"),
    ):
        file.write_bytes(content)
        with pytest.raises(ValueError, match=told):
            read_contract(str(file))
    for path, told in (("contract.yaml", "must be a whole path"), (tmp_path / "no", "cannot be")):
        with pytest.raises(ValueError, match=told):
            read_contract(str(path))
