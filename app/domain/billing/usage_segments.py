"""A machine's billed run, cut where its payer, its price or the UTC hour changes.

Lives here: which span is billed, as seen at an instant, and its constant segments. Not here:
what a segment costs and how that is rounded (`billing`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from uuid import UUID

from app.domain.billing.billing_rules import BillingRules
from app.domain.billing.machine_facts import AssignmentSpan, MachineFacts
from app.domain.market.price_book import PriceSegment, UnknownPrice
from app.domain.units.apportionment import divide_up

MICROSECOND = timedelta(microseconds=1)
HOUR = timedelta(hours=1)
US_PER_SECOND = 1_000_000
US_PER_HOUR = 3600 * US_PER_SECOND


class OverlappingAssignments(ValueError):
    """Two assignments of one machine claim the same second; who pays would be a guess."""


@dataclass(frozen=True, slots=True)
class BillableRun:
    """The time a machine is billed for, as seen at one instant."""

    from_at: datetime
    to_at: datetime
    has_ended: bool


@dataclass(frozen=True, slots=True)
class UsageSegment:
    """Part of a run with one payer (None: nobody was assigned), one usage hour and one price."""

    from_at: datetime
    to_at: datetime
    assignment_id: UUID | None
    price: PriceSegment

    @property
    def length_us(self) -> int:
        """Wall microseconds."""
        return (self.to_at - self.from_at) // MICROSECOND


def billable_run(facts: MachineFacts, until: datetime) -> BillableRun | None:
    """The billed span as seen at `until`, or None when the machine has not started by then."""
    if facts.started_at is None or until < facts.started_at:
        return None
    if facts.ended_at is not None and facts.ended_at <= until:
        return BillableRun(facts.started_at, max(facts.started_at, facts.ended_at), True)
    return BillableRun(facts.started_at, until, False)


def utc_hour(instant: datetime) -> datetime:
    """The start of the UTC hour that holds `instant`."""
    return instant.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def usage_segments(
    run: BillableRun, facts: MachineFacts, prices: Sequence[PriceSegment]
) -> tuple[UsageSegment, ...]:
    """The run's segments in order of time, without a gap.

    A run of no length has none while it lasts, and one of no length once it has ended: its
    minimum charge needs a payer. Raises UnknownPrice, OverlappingAssignments.
    """
    assignments = _ordered_assignments(facts)
    spans = list(pairwise(_cuts(run, assignments, prices)))
    if not spans and run.has_ended:
        spans = [(run.from_at, run.to_at)]
    found: list[UsageSegment] = []
    payer_place = price_place = 0
    for from_at, to_at in spans:
        while payer_place < len(assignments) and _is_over(assignments[payer_place], from_at):
            payer_place += 1
        while price_place + 1 < len(prices) and prices[price_place + 1].from_at <= from_at:
            price_place += 1
        if not prices or not _covers(prices[price_place], from_at, to_at):
            raise UnknownPrice(
                f"instance {facts.instance_id} ran from {from_at.isoformat()} to "
                f"{to_at.isoformat()} and no price segment covers that; extend the price history"
            )
        payer = assignments[payer_place] if payer_place < len(assignments) else None
        assigned = payer.assignment_id if payer and payer.from_at <= from_at else None
        found.append(UsageSegment(from_at, to_at, assigned, prices[price_place]))
    return tuple(found)


def payer_at(facts: MachineFacts, instant: datetime) -> UUID | None:
    """The assignment that holds an instant; at the very end of the last one, that one."""
    for span in reversed(_ordered_assignments(facts)):
        if span.from_at <= instant and (span.to_at is None or instant <= span.to_at):
            return span.assignment_id
    return None


def hour_start_prices(
    prices: Sequence[PriceSegment], run: BillableRun, rules: BillingRules
) -> tuple[PriceSegment, ...]:
    """The price at the start of each instance-hour, held for that (billed) hour."""
    held: list[PriceSegment] = []
    speed = rules.billing_speed
    starts_at, hours = run.from_at, 0
    while not held or starts_at < run.to_at:
        hours += 1
        wall_us = divide_up(hours * US_PER_HOUR * speed.denominator, speed.numerator)
        ends_at = min(run.from_at + wall_us * MICROSECOND, run.to_at)
        in_effect = [price for price in prices if price.from_at <= starts_at]
        if not in_effect or not _covers(in_effect[-1], starts_at, starts_at):
            raise UnknownPrice(
                f"no price segment covers {starts_at.isoformat()}; extend the price history"
            )
        held.append(replace(in_effect[-1], from_at=starts_at, to_at=ends_at))
        starts_at = ends_at
    return tuple(held)


def _cuts(
    run: BillableRun, assignments: Sequence[AssignmentSpan], prices: Sequence[PriceSegment]
) -> list[datetime]:
    cuts = {run.from_at, run.to_at}
    for span in assignments:
        cuts.update((span.from_at, span.to_at or run.to_at))
    for price in prices:
        cuts.update((price.from_at, price.to_at))
    hour = utc_hour(run.from_at) + HOUR
    while hour < run.to_at:
        cuts.add(hour)
        hour += HOUR
    return sorted(cut for cut in cuts if run.from_at <= cut <= run.to_at)


def _ordered_assignments(facts: MachineFacts) -> list[AssignmentSpan]:
    """Assignments of some length, by start. Raises OverlappingAssignments."""
    spans = [span for span in facts.assignments if span.to_at is None or span.to_at > span.from_at]
    spans.sort(key=lambda span: span.from_at)
    for earlier, later in pairwise(spans):
        if earlier.to_at is None or earlier.to_at > later.from_at:
            raise OverlappingAssignments(
                f"instance {facts.instance_id}: assignments {earlier.assignment_id} and "
                f"{later.assignment_id} both hold {later.from_at.isoformat()}"
            )
    return spans


def _is_over(span: AssignmentSpan, instant: datetime) -> bool:
    return span.to_at is not None and span.to_at <= instant


def _covers(price: PriceSegment, from_at: datetime, to_at: datetime) -> bool:
    return price.from_at <= from_at and to_at <= price.to_at
