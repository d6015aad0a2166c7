"""The local cloud's bill: its rules by hand, and agreement with the ledger's own arithmetic.

Nobody shares code between the two on purpose, so equality here says something.
"""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.adapters.providers.local.files.cloud_settings import (
    CloudTerms,
    LocalSettings,
    settle_terms,
)
from app.adapters.providers.local.machines.machine import Machine
from app.adapters.providers.local.market.market import RecordedMarkets
from app.adapters.providers.local.provider import instant
from app.adapters.providers.local.server.cloud_bill import attached_microusd, compute_microusd
from app.domain.billing.billing import bill
from app.domain.billing.billing_rules import rules_for
from app.domain.billing.machine_facts import AddressRate, DiskRate, MachineFacts, TimeSource
from app.domain.lifecycle.instance import EndedBy
from app.domain.market.offer import Market, Pool
from app.domain.market.price_book import PriceBook, PricePoint, PriceSegment
from app.ports.cloud_provider import MachineState
from tests.support.deployment.scripted_local_cloud import (
    AWS_POOL,
    GCP_POOL,
    an_order,
    open_local_cloud,
    spot_pool,
)

EPOCH_US = 1_800_000_000_000_000
SECOND = 1_000_000
HOUR = 3_600 * SECOND
ZONES = ("us-east-1c", "us-east-1f", "us-west-2a", "us-east-2a", "us-central1-a", "us-east4-a")


@functools.cache
def markets(market_speed: Fraction = Fraction(1), offset: int = 0) -> RecordedMarkets:
    terms = CloudTerms(EPOCH_US, offset, market_speed, Fraction(1))
    return RecordedMarkets(terms, LocalSettings())


def machine(
    pool: Pool,
    ran_us: int | None,
    ended_by: EndedBy = EndedBy.US,
    from_us: int = EPOCH_US,
) -> Machine:
    return Machine(
        machine_id="i-1",
        client_token="token",
        pool=pool,
        cloud="gce" if pool.zone[-2] == "-" else "ec2",
        launched_at_us=from_us,
        metadata_port=1,
        boot_id="",
        state=MachineState.RUNNING if ran_us is None else MachineState.TERMINATED,
        ended_by=None if ran_us is None else ended_by,
        ended_at_us=None if ran_us is None else from_us + ran_us,
    )


@pytest.mark.parametrize(
    ("pool", "ran_seconds", "ended_by", "cost"),
    [
        (AWS_POOL, 7_200, EndedBy.US, 2 * 918_000),
        (AWS_POOL, 3_599, EndedBy.CLOUD_INTERRUPTION, 0),
        (AWS_POOL, 3_600, EndedBy.CLOUD_INTERRUPTION, 918_000),
        (AWS_POOL, 3_599, EndedBy.CLOUD_FAILURE, 917_745),
        (AWS_POOL, 5, EndedBy.OS_SHUTDOWN, 15_300),  # the minimum, 60 s
        (AWS_POOL, 0, EndedBy.US, 15_300),
        (GCP_POOL, 59, EndedBy.CLOUD_INTERRUPTION, 0),
        (GCP_POOL, 60, EndedBy.CLOUD_INTERRUPTION, 39_540),  # 39,539.6
        (GCP_POOL, 1_800, EndedBy.CLOUD_INTERRUPTION, 1_186_188),
    ],
)
def test_the_rules_by_hand(pool: Pool, ran_seconds: int, ended_by: EndedBy, cost: int) -> None:
    ended = machine(pool, ran_seconds * SECOND, ended_by)
    assert compute_microusd(ended, markets(), Fraction(1), EPOCH_US + 10 * HOUR) == cost


def test_a_running_machine_pays_what_has_passed() -> None:
    running = machine(AWS_POOL, None)
    assert compute_microusd(running, markets(), Fraction(1), EPOCH_US - 1) is None
    assert compute_microusd(running, markets(), Fraction(1), EPOCH_US) == 0
    assert compute_microusd(running, markets(), Fraction(1), EPOCH_US + 40 * SECOND) == 10_200
    assert compute_microusd(running, markets(), Fraction(60), EPOCH_US + 60 * SECOND) == 918_000


def test_on_demand_is_never_waived() -> None:
    on_demand = Pool("local", "us-west-2", "us-west-2a", "p3.2xlarge", Market.ON_DEMAND)
    ended = machine(on_demand, 60 * SECOND, EndedBy.CLOUD_INTERRUPTION)
    assert compute_microusd(ended, markets(), Fraction(1), EPOCH_US + HOUR) == 51_000


@settings(deadline=None)  # a loaded machine is no counterexample
@given(
    zone=st.sampled_from(ZONES),
    market=st.sampled_from(Market),
    from_us=st.integers(0, 40 * 24 * HOUR),
    ran_us=st.one_of(st.integers(0, 5_000 * SECOND), st.integers(0, 30 * HOUR)),
    looked_after_us=st.integers(-HOUR, 40 * HOUR),
    ended_by=st.sampled_from([EndedBy.US, EndedBy.CLOUD_INTERRUPTION, EndedBy.CLOUD_FAILURE]),
    billing_speed=st.sampled_from([Fraction(1), Fraction(60), Fraction(7, 3)]),
    market_speed=st.sampled_from([Fraction(1), Fraction(60), Fraction(997)]),
    offset=st.sampled_from([0, 195_001, 2_999_999]),
)
@example(
    zone="us-east-1c", market=Market.SPOT, from_us=0, ran_us=59_999_999,
    looked_after_us=HOUR, ended_by=EndedBy.CLOUD_INTERRUPTION,
    billing_speed=Fraction(60), market_speed=Fraction(997), offset=0,
)  # fmt: skip
def test_it_equals_the_ledgers_to_the_micro_dollar(
    zone: str, market: Market, from_us: int, ran_us: int, looked_after_us: int,
    ended_by: EndedBy, billing_speed: Fraction, market_speed: Fraction, offset: int,
) -> None:  # fmt: skip
    played = markets(market_speed, offset)
    spot = spot_pool(zone)
    pool = Pool(spot.provider, spot.region, spot.zone, spot.instance_type, market)
    ours = machine(pool, ran_us, ended_by, EPOCH_US + from_us)
    assert ours.ended_at_us is not None
    until_us = ours.launched_at_us + looked_after_us
    cloud_says = compute_microusd(ours, played, billing_speed, until_us)

    facts = MachineFacts(
        instance_id=UUID(int=1),
        market=market,
        started_at=instant(ours.launched_at_us),
        started_source=TimeSource.PROVIDER_RECORD,
        ended_at=instant(ours.ended_at_us),
        ended_source=TimeSource.PROVIDER_RECORD,
        ended_by=ended_by,
    )
    last_us = max(ours.ended_at_us, until_us, EPOCH_US)
    book = PriceBook.of(
        PricePoint(instant(point.at_us), point.microusd_per_hour, "cloud", instant(EPOCH_US))
        for point in played.price_points(pool, EPOCH_US, last_us)
    )
    segments = book.segments(instant(ours.launched_at_us), instant(last_us))
    rules = rules_for(ours.cloud).at_speed(billing_speed)
    lines = bill(facts, segments, rules, instant(until_us))
    assert sum(lines.values()) == (cloud_says or 0)


@settings(deadline=None)
@given(
    ran_us=st.one_of(st.integers(0, 5_000 * SECOND), st.integers(0, 30 * HOUR)),
    looked_after_us=st.integers(0, 40 * HOUR),
    ended_by=st.sampled_from([EndedBy.US, EndedBy.CLOUD_INTERRUPTION]),
    billing_speed=st.sampled_from([Fraction(1), Fraction(60), Fraction(7, 3)]),
    disk=st.tuples(st.integers(0, 2_000), st.integers(0, 200_000)),
    asked_gb=st.none() | st.integers(1, 500),
    address=st.integers(0, 10_000),
)
def test_disk_and_address_equal_the_ledgers_waived_or_not(
    ran_us: int, looked_after_us: int, ended_by: EndedBy, billing_speed: Fraction,
    disk: tuple[int, int], asked_gb: int | None, address: int,
) -> None:  # fmt: skip
    terms = CloudTerms(EPOCH_US, 0, Fraction(1), billing_speed, *disk, address)
    ours = replace(machine(AWS_POOL, ran_us, ended_by), disk_gb=asked_gb)
    assert ours.ended_at_us is not None
    until_us = ours.launched_at_us + looked_after_us
    at = instant(EPOCH_US)
    facts = MachineFacts(
        instance_id=UUID(int=1),
        market=Market.SPOT,
        started_at=at,
        ended_at=instant(ours.ended_at_us),
        ended_by=ended_by,
        disk=DiskRate(disk[0] if asked_gb is None else asked_gb, disk[1], "terms", at),
        public_ip=AddressRate(address, "terms", at),
    )
    free = (PriceSegment(at, instant(EPOCH_US + 100 * HOUR), 0, "free", at),)
    found: Counter[str] = Counter()
    rules = rules_for("ec2").at_speed(billing_speed)
    for key, amount in bill(facts, free, rules, instant(until_us)).items():
        found[key.component] += amount
    assert {name: amount for name, amount in found.items() if amount} == {
        name: amount for name, amount in attached_microusd(ours, terms, until_us).items() if amount
    }


def test_what_a_folders_cloud_charges_for_disks_never_changes(tmp_path: Path) -> None:
    dear = LocalSettings(disk_gb=50, disk_microusd_per_gb_month=73_000)
    first = settle_terms(tmp_path, dear, EPOCH_US)
    assert (first.disk_gb, first.disk_microusd_per_gb_month) == (50, 73_000)
    assert settle_terms(tmp_path, LocalSettings(), EPOCH_US + HOUR) == first


def test_offers_carry_the_prices_that_the_invoice_is_made_of() -> None:
    attached = {"disk_gb": 500, "disk_microusd_per_gb_month": 73_000}
    with open_local_cloud(billing_speed=3_600, public_ip_microusd_per_hour=5_000, **attached) as it:
        offer = next(one for one in it.prices.offers() if one.pool == AWS_POOL)
        assert offer.attachments is not None
        assert offer.attachments.microusd_per_hour == 50_000 + 5_000
        ours = it.launch(an_order(AWS_POOL, token="a"))
        it.provider.terminate((ours,))
        ended = it.await_end(ours)
        assert ended.ended_at is not None
        assert ended.launched_at is not None
        hours = max(60, -(-(ended.ended_at - ended.launched_at) * 3_600 // timedelta(seconds=1)))
        until = datetime.now(UTC) + timedelta(seconds=10)
        said = it.provider.invoice(until)[ours]
        assert said["disk"] == round(Fraction(50_000 * hours, 3_600))
        assert said["public_ip"] == round(Fraction(5_000 * hours, 3_600))


def test_the_invoice_covers_every_machine_there_was() -> None:
    with open_local_cloud(billing_speed=3_600) as cloud:
        taken = cloud.launch(an_order(AWS_POOL, token="a"))
        ours = cloud.launch(an_order(GCP_POOL, token="b"))
        running = cloud.launch(an_order(spot_pool("us-east-1c"), token="c"))
        cloud.provider.interrupt(taken, None)
        cloud.provider.terminate((ours,))
        ended = cloud.await_end(ours)
        assert ended.ended_at is not None
        assert ended.launched_at is not None
        cloud.await_end(taken)
        until = datetime.now(UTC) + timedelta(seconds=10)
        invoice = cloud.provider.invoice(until)
        assert set(invoice) == {taken, ours, running}
        assert invoice[taken] == {"compute": 0}
        seconds = -(-(ended.ended_at - ended.launched_at) * 3_600 // timedelta(seconds=1))
        assert invoice[ours]["compute"] == round(Fraction(2_372_376 * max(60, seconds), 3_600))
        started_at = cloud.machine(running).launched_at
        assert started_at is not None
        ran_us = (until - started_at) // timedelta(microseconds=1)
        assert invoice[running]["compute"] == round(Fraction(1_205_400 * ran_us, SECOND))
        assert cloud.provider.invoice(until) == invoice
        assert cloud.provider.invoice(started_at - timedelta(seconds=1)) == {}
