"""What one machine costs up to an instant: pure, cumulative from its start, exact.

Lives here: `rate` and `bill`. Not here: the rules as data (`billing_rules`), cutting a run into
segments (`usage_segments`), what is already booked and the entries that close the difference
(`ledger`), where the money went (`cost_statement`).

Rounding. Costs are exact integers over one denominator until the very end. The total of an
instance and component is rounded once, half to even, to a micro-dollar. It is shared over the
keys along time: a segment gets round(cost up to its end) - round(cost up to its start). The sum
is the rounded total, each segment is within one micro-dollar of its exact cost, and a segment
that is over keeps its share for ever while the machine runs on. (Sharing by largest remainder
sums as exactly, but moves single micro-dollars between closed hours at every step.)

Charged time. While a machine runs, its elapsed time counts as it is. Once it has ended, a begun
second counts whole and the minimum applies; what that adds belongs to the last segment, at its
price. So the bill of an uninterrupted machine never falls as time goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from app.domain.billing.billing_rules import BillingRules, SpotPricing
from app.domain.billing.machine_facts import MachineFacts, Transfer
from app.domain.billing.usage_segments import (
    MICROSECOND,
    US_PER_HOUR,
    US_PER_SECOND,
    BillableRun,
    billable_run,
    hour_start_prices,
    payer_at,
    usage_segments,
    utc_hour,
)
from app.domain.lifecycle.instance import EndedBy
from app.domain.market.price_book import PriceSegment
from app.domain.units.apportionment import divide_half_even, divide_up

BYTES_PER_GB = 2**30
"""Clouds bill traffic by the binary gigabyte."""


class Component(StrEnum):
    """What is charged for. The first three follow the machine's time; the others are metered."""

    COMPUTE = "compute"
    DISK = "disk"
    PUBLIC_IP = "public_ip"
    OBJECT_STORAGE = "object_storage"
    EGRESS = "egress"
    CROSS_ZONE = "cross_zone"


FOLLOWS_TIME = frozenset({Component.COMPUTE, Component.DISK, Component.PUBLIC_IP})
"""Components that a machine's least charge applies to."""


@dataclass(frozen=True, slots=True)
class BillKey:
    """One cell of the bill. `assignment_id` is None for seconds that nobody was assigned."""

    instance_id: UUID
    component: Component
    assignment_id: UUID | None
    usage_hour_at: datetime  # start of the UTC hour


@dataclass(frozen=True, slots=True)
class BillLine:
    """A cell with its amount, the span it covers, and the last price that went into it.

    estimated: its amount rests on a size that nobody measured.
    """

    key: BillKey
    amount_microusd: int
    usage_from_at: datetime
    usage_to_at: datetime
    price_source: str
    price_captured_at: datetime
    estimated: bool = False


def bill(
    facts: MachineFacts, prices: Sequence[PriceSegment], rules: BillingRules, until: datetime
) -> dict[BillKey, int]:
    """Micro-dollars per cell, from the machine's start up to `until`; see `rate`."""
    return {line.key: line.amount_microusd for line in rate(facts, prices, rules, until)}


def rate(
    facts: MachineFacts, prices: Sequence[PriceSegment], rules: BillingRules, until: datetime
) -> tuple[BillLine, ...]:
    """The bill's lines: components in their declared order, cells in order of time.

    `prices` are gapless segments, in order, of µUSD per instance-hour; they cover the machine's
    run up to `until` and may reach further. A waived machine keeps its compute cells, at 0.
    Raises UnknownPrice when a second of the run has no price, OverlappingAssignments when a
    second has two payers.
    """
    run = billable_run(facts, until)
    if run is None:
        return ()
    hourly = rules.spot_pricing is SpotPricing.HOUR_START and facts.market == rules.waiver_market
    if hourly:
        prices = hour_start_prices(prices, run, rules)
    lines = _charge(facts, run, prices, rules, Component.COMPUTE, US_PER_HOUR)
    if is_waived(facts, rules, until):
        lines = [replace(line, amount_microusd=0) for line in lines]
    disk, address = facts.disk, facts.public_ip
    if disk is not None:
        price = disk.size_gb * disk.microusd_per_gb_month + disk.microusd_per_month
        fixed = PriceSegment(run.from_at, run.to_at, price, disk.source, disk.captured_at)
        month_us = rules.hours_per_month * US_PER_HOUR
        lines += _charge(facts, run, (fixed,), rules, Component.DISK, month_us)
    if address is not None:
        price = address.microusd_per_hour
        fixed = PriceSegment(run.from_at, run.to_at, price, address.source, address.captured_at)
        lines += _charge(facts, run, (fixed,), rules, Component.PUBLIC_IP, US_PER_HOUR)
    return (*lines, *_charge_transfers(facts, run))


def is_waived(facts: MachineFacts, rules: BillingRules, until: datetime) -> bool:
    """True once the cloud has taken the machine inside the free window: its compute is then 0."""
    run = billable_run(facts, until)
    return (
        run is not None
        and run.has_ended
        and facts.ended_by == EndedBy.CLOUD_INTERRUPTION
        and facts.market == rules.waiver_market
        and _billed(run, rules) < _scaled(rules.free_if_interrupted_within_seconds, rules)
    )


def minimum_applies(facts: MachineFacts, rules: BillingRules, until: datetime) -> bool:
    """True once the machine has ended before its minimum charge was reached."""
    run = billable_run(facts, until)
    return (
        run is not None
        and run.has_ended
        and _billed(run, rules) < _scaled(rules.minimum_seconds, rules)
    )


def minimum_added(facts: MachineFacts, rules: BillingRules, until: datetime) -> timedelta:
    """How much longer an ended machine is charged than it ran, because of the minimum: wall time.

    Nothing where the minimum does not apply. The last cell of each component that follows time
    holds its cost.
    """
    run = billable_run(facts, until)
    if run is None or not minimum_applies(facts, rules, until):
        return timedelta()
    added = _scaled(rules.minimum_seconds, rules) - _billed(run, rules)
    return MICROSECOND * (added // rules.billing_speed.numerator)


def waived_microusd(
    facts: MachineFacts, prices: Sequence[PriceSegment], rules: BillingRules, until: datetime
) -> int:
    """What the waiver saved: the compute cost without it, or 0 when the machine is not waived."""
    if not is_waived(facts, rules, until):
        return 0
    paid = bill(facts, prices, replace(rules, free_if_interrupted_within_seconds=0), until)
    return sum(amount for key, amount in paid.items() if key.component is Component.COMPUTE)


def counted_transfers(facts: MachineFacts, run: BillableRun | None) -> list[Transfer]:
    """Transfers that the bill of this run holds, in order; all of them once it has ended."""
    if run is None:
        return []
    counted = [one for one in facts.transfers if run.has_ended or one.at <= run.to_at]
    return sorted(counted, key=lambda one: (one.at, one.size_bytes))


def _charge_transfers(facts: MachineFacts, run: BillableRun) -> list[BillLine]:
    """Egress: each transfer in the cell of its instant, rounded along time as all else."""
    cost, rounded = 0, 0
    lines: dict[BillKey, BillLine] = {}
    for one in counted_transfers(facts, run):
        at = min(max(one.at, run.from_at), run.to_at)
        cost += one.size_bytes * one.microusd_per_gb
        amount = divide_half_even(cost, BYTES_PER_GB) - rounded
        rounded += amount
        key = BillKey(facts.instance_id, Component.EGRESS, payer_at(facts, at), utc_hour(at))
        earlier = lines.get(key)
        lines[key] = BillLine(
            key,
            amount + (earlier.amount_microusd if earlier else 0),
            earlier.usage_from_at if earlier else at,
            at,
            one.source,
            one.captured_at,
            one.estimated or (earlier is not None and earlier.estimated),
        )
    return list(lines.values())


def _billed(run: BillableRun, rules: BillingRules) -> int:
    """Length of the run in billed microseconds x the denominator of `billing_speed`."""
    return ((run.to_at - run.from_at) // MICROSECOND) * rules.billing_speed.numerator


def _scaled(billed_seconds: int, rules: BillingRules) -> int:
    """Billed seconds in the unit of `_billed`."""
    return billed_seconds * US_PER_SECOND * rules.billing_speed.denominator


def _added_at_the_end(run: BillableRun, rules: BillingRules) -> int:
    """What rounding up and the minimum add to an ended run, in the unit of `_billed`."""
    if not run.has_ended:
        return 0
    elapsed = _billed(run, rules)
    grain = _scaled(rules.granularity_seconds, rules)
    whole = divide_up(elapsed, grain) * grain
    return max(whole, _scaled(rules.minimum_seconds, rules)) - elapsed


def _charge(
    facts: MachineFacts,
    run: BillableRun,
    prices: Sequence[PriceSegment],
    rules: BillingRules,
    component: Component,
    us_per_price: int,
) -> list[BillLine]:
    """One component's cells; `prices` are µUSD per `us_per_price` billed microseconds."""
    parts = usage_segments(run, facts, prices)
    added = _added_at_the_end(run, rules)
    denominator = us_per_price * rules.billing_speed.denominator
    cost, rounded = 0, 0
    lines: dict[BillKey, BillLine] = {}
    for place, segment in enumerate(parts):
        charged = segment.length_us * rules.billing_speed.numerator
        if place == len(parts) - 1:
            charged += added
        cost += charged * segment.price.microusd_per_hour
        amount = divide_half_even(cost, denominator) - rounded
        rounded += amount
        hour = utc_hour(segment.from_at)
        key = BillKey(facts.instance_id, component, segment.assignment_id, hour)
        earlier = lines.get(key)
        lines[key] = BillLine(
            key,
            amount + (earlier.amount_microusd if earlier else 0),
            earlier.usage_from_at if earlier else segment.from_at,
            segment.to_at,
            segment.price.source,
            segment.price.captured_at,
        )
    return list(lines.values())
