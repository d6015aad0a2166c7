"""The bill of one machine against amounts worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from app.domain.billing.billing import (
    BillKey,
    Component,
    bill,
    is_waived,
    minimum_added,
    minimum_applies,
    rate,
    waived_microusd,
)
from app.domain.billing.billing_rules import EC2_RULES, GCE_RULES, SpotPricing, rules_for
from app.domain.billing.machine_facts import (
    AddressRate,
    AssignmentSpan,
    DiskRate,
    MachineFacts,
    TimeSource,
)
from app.domain.billing.usage_segments import OverlappingAssignments
from app.domain.lifecycle.instance import EndedBy
from app.domain.market.offer import Market
from app.domain.market.price_book import PriceBook, PricePoint, UnknownPrice

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
START = NOON - timedelta(minutes=30)
MACHINE, FIRST, SECOND = UUID(int=1), UUID(int=11), UUID(int=12)
PRICE = 3_600_000  # $3.60 an hour: 1,000 micro-dollars a second
BOOK = PriceBook.of([PricePoint(START, PRICE, "trace", START)])
PRICES = BOOK.segments(START, START + timedelta(days=2))


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def machine(
    ended: float | None = None, by: EndedBy | None = None, market: Market = Market.SPOT
) -> MachineFacts:
    return MachineFacts(
        instance_id=MACHINE,
        market=market,
        started_at=START,
        started_source=TimeSource.LAUNCH_TIME,
        ended_at=None if ended is None else after(ended),
        ended_by=by,
        assignments=(AssignmentSpan(FIRST, UUID(int=5), None, START),),
    )


def total(amounts: dict[BillKey, int], component: Component = Component.COMPUTE) -> int:
    return sum(amount for key, amount in amounts.items() if key.component is component)


def test_a_machine_that_never_ran_owes_nothing() -> None:
    never = replace(machine(), started_at=None, ended_at=after(5))
    assert bill(never, PRICES, EC2_RULES, after(100)) == {}
    assert bill(machine(), PRICES, EC2_RULES, after(-1)) == {}
    assert bill(machine(), PRICES, EC2_RULES, START) == {}


def test_cells_are_cut_at_the_utc_hour_and_at_assignments() -> None:
    facts = replace(
        machine(),
        assignments=(
            AssignmentSpan(FIRST, None, None, START, after(1000)),
            AssignmentSpan(FIRST, None, None, after(1000), after(1000)),
            AssignmentSpan(SECOND, None, None, after(1000)),
        ),
    )
    found = bill(facts, PRICES, EC2_RULES, after(2000))
    eleven = NOON - timedelta(hours=1)
    assert found == {
        BillKey(MACHINE, Component.COMPUTE, FIRST, eleven): 1_000_000,
        BillKey(MACHINE, Component.COMPUTE, SECOND, eleven): 800_000,
        BillKey(MACHINE, Component.COMPUTE, SECOND, NOON): 200_000,
    }
    assert list(found) == sorted(found, key=lambda key: (key.usage_hour_at, key.assignment_id))


def test_seconds_without_an_assignment_are_billed_to_nobody() -> None:
    late = replace(machine(), assignments=(AssignmentSpan(FIRST, None, None, after(60)),))
    found = bill(late, PRICES, EC2_RULES, after(90))
    assert {key.assignment_id: amount for key, amount in found.items()} == {
        None: 60_000,
        FIRST: 30_000,
    }


def test_overlapping_assignments_are_an_error() -> None:
    spans = (
        AssignmentSpan(FIRST, None, None, START, after(60)),
        AssignmentSpan(SECOND, None, None, after(59)),
    )
    with pytest.raises(OverlappingAssignments, match="both hold"):
        bill(replace(machine(), assignments=spans), PRICES, EC2_RULES, after(10))


def test_the_price_of_each_moment_counts() -> None:
    book = PriceBook.of([*BOOK.points, PricePoint(after(100), 2 * PRICE, "trace", START)])
    found = bill(machine(), book.segments(START, after(500)), EC2_RULES, after(160))
    assert total(found) == 100_000 + 60 * 2_000


def test_hour_start_pricing_holds_the_price_of_each_instance_hour() -> None:
    rules = replace(EC2_RULES, spot_pricing=SpotPricing.HOUR_START)
    book = PriceBook.of([*BOOK.points, PricePoint(after(100), 2 * PRICE, "trace", START)])
    prices = book.segments(START, after(9000))
    assert total(bill(machine(), prices, rules, after(3600))) == 3_600_000
    assert total(bill(machine(), prices, rules, after(3601))) == 3_602_000
    on_demand = machine(market=Market.ON_DEMAND)
    assert total(bill(on_demand, prices, rules, after(200))) == 100_000 + 200_000


def test_the_minimum_is_charged_once_the_machine_has_ended() -> None:
    assert total(bill(machine(10, EndedBy.US), PRICES, EC2_RULES, after(9))) == 9_000
    assert total(bill(machine(10, EndedBy.US), PRICES, EC2_RULES, after(10))) == 60_000
    assert minimum_applies(machine(10, EndedBy.US), EC2_RULES, after(10))
    assert not minimum_applies(machine(60, EndedBy.US), EC2_RULES, after(60))
    # The 60 s, less what it ran, by the wall's clock; begun seconds are no part of it.
    assert minimum_added(machine(10.4, EndedBy.US), EC2_RULES, after(70)) == timedelta(seconds=49.6)
    assert minimum_added(machine(60.4, EndedBy.US), EC2_RULES, after(70)) == timedelta()
    assert minimum_added(machine(10, EndedBy.US), EC2_RULES, after(5)) == timedelta()
    hurried = EC2_RULES.at_speed(30)
    assert minimum_added(machine(1, EndedBy.US), hurried, after(5)) == timedelta(seconds=1)


def test_a_price_that_changes_after_the_end_is_no_part_of_the_minimum() -> None:
    book = PriceBook.of([*BOOK.points, PricePoint(after(20), 2 * PRICE, "trace", START)])
    found = bill(machine(10, EndedBy.US), book.segments(START, NOON), EC2_RULES, NOON)
    assert total(found) == 60_000


def test_the_shortfall_goes_to_the_last_cell() -> None:
    facts = replace(
        machine(20, EndedBy.US),
        assignments=(
            AssignmentSpan(FIRST, None, None, START, after(15)),
            AssignmentSpan(SECOND, None, None, after(15)),
        ),
    )
    assert list(bill(facts, PRICES, EC2_RULES, NOON).values()) == [15_000, 45_000]


@pytest.mark.parametrize("ended", [0, -0.4])
def test_a_run_without_length_pays_the_minimum(ended: float) -> None:
    found = rate(machine(ended, EndedBy.US), BOOK.segments(START, START), EC2_RULES, after(5))
    assert [(line.key.assignment_id, line.amount_microusd) for line in found] == [(FIRST, 60_000)]


def test_a_begun_second_counts_whole_at_the_end() -> None:
    assert total(bill(machine(100.2, EndedBy.US), PRICES, EC2_RULES, NOON)) == 101_000
    assert total(bill(machine(), PRICES, EC2_RULES, after(100.2))) == 100_200


@pytest.mark.parametrize(
    ("rules", "ended", "by", "market", "paid"),
    [
        (EC2_RULES, 1799, EndedBy.CLOUD_INTERRUPTION, Market.SPOT, 0),
        (EC2_RULES, 3599.5, EndedBy.CLOUD_INTERRUPTION, Market.SPOT, 0),
        (EC2_RULES, 3600, EndedBy.CLOUD_INTERRUPTION, Market.SPOT, 3_600_000),
        (EC2_RULES, 1799, EndedBy.US, Market.SPOT, 1_799_000),
        (EC2_RULES, 1799, EndedBy.OS_SHUTDOWN, Market.SPOT, 1_799_000),
        (EC2_RULES, 1799, EndedBy.CLOUD_FAILURE, Market.SPOT, 1_799_000),
        (EC2_RULES, 1799, EndedBy.CLOUD_INTERRUPTION, Market.ON_DEMAND, 1_799_000),
        (GCE_RULES, 59, EndedBy.CLOUD_INTERRUPTION, Market.SPOT, 0),
        (GCE_RULES, 61, EndedBy.CLOUD_INTERRUPTION, Market.SPOT, 61_000),
        (EC2_RULES.at_speed(60), 59, EndedBy.CLOUD_INTERRUPTION, Market.SPOT, 0),
        (EC2_RULES.at_speed(60), 60, EndedBy.CLOUD_INTERRUPTION, Market.SPOT, 3_600_000),
        (EC2_RULES.at_speed(60), 0.5, EndedBy.US, Market.SPOT, 60_000),
    ],
)
def test_who_ended_it_and_when_decides_the_waiver(
    rules: object, ended: float, by: EndedBy, market: Market, paid: int
) -> None:
    facts = machine(ended, by, market)
    assert total(bill(facts, PRICES, rules, after(9000))) == paid  # type: ignore[arg-type]
    assert is_waived(facts, rules, after(9000)) == (paid == 0)  # type: ignore[arg-type]


def test_a_waiver_is_not_anticipated_and_keeps_disk_and_address() -> None:
    facts = replace(
        machine(1800, EndedBy.CLOUD_INTERRUPTION),
        disk=DiskRate(730, 80_000, "list", START),
        public_ip=AddressRate(5_000, "list", START),
    )
    assert total(bill(facts, PRICES, EC2_RULES, after(1799))) == 1_799_000
    found = bill(facts, PRICES, EC2_RULES, after(1800))
    assert total(found) == 0
    assert total(found, Component.DISK) == 40_000  # 730 GB x $0.08 a month = $0.08 an hour
    assert total(found, Component.PUBLIC_IP) == 2_500
    assert waived_microusd(facts, PRICES, EC2_RULES, after(1800)) == 1_800_000
    assert waived_microusd(facts, PRICES, EC2_RULES, after(1799)) == 0


def test_a_second_without_a_price_is_an_error_not_a_free_second() -> None:
    with pytest.raises(UnknownPrice, match="no price segment covers"):
        bill(machine(), BOOK.segments(START, after(50)), EC2_RULES, after(51))
    with pytest.raises(UnknownPrice, match="no price segment covers"):
        bill(machine(), (), EC2_RULES, after(51))
    hourly = replace(EC2_RULES, spot_pricing=SpotPricing.HOUR_START)
    with pytest.raises(UnknownPrice, match="no price segment covers"):
        bill(machine(), BOOK.segments(START, after(50)), hourly, after(4000))


def test_a_line_names_its_span_and_its_last_price() -> None:
    later = after(100)
    book = PriceBook.of([*BOOK.points, PricePoint(later, PRICE, "api", later)])
    (line,) = rate(machine(), book.segments(START, NOON), EC2_RULES, after(160))
    assert (line.usage_from_at, line.usage_to_at) == (START, after(160))
    assert (line.price_source, line.price_captured_at) == ("api", later)


def test_rules_are_found_by_id() -> None:
    assert rules_for("gce") is GCE_RULES
    with pytest.raises(LookupError, match="known: ec2, gce"):
        rules_for("azure")
    with pytest.raises(ValueError, match="billing_speed must be positive"):
        EC2_RULES.at_speed(0)


def test_naive_times_are_refused_and_our_own_observations_are_estimates() -> None:
    with pytest.raises(ValueError, match="ended_at has no time zone"):
        replace(machine(), ended_at=datetime(2026, 3, 1))  # noqa: DTZ001
    assert not machine().times_estimated
    assert replace(machine(), ended_source=TimeSource.FIRST_SEEN_GONE).times_estimated
