"""From stored rows to a machine's bill: the one way to put facts, prices and rules together.

Lives here: turning an instance, its assignments and its pool's price points into the inputs of
`billing` and `ledger`, so that booking, reporting and verifying cannot differ. Not here: the bill
itself, or reading and writing rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from app.domain.billing.billing import BillLine, Component, rate
from app.domain.billing.billing_rules import BillingRules, rules_for
from app.domain.billing.ledger import ClosedBooks, LedgerKey, close_books
from app.domain.billing.machine_facts import (
    AddressRate,
    AssignmentSpan,
    DiskRate,
    MachineFacts,
    Transfer,
)
from app.domain.billing.rating_basis import RatingBasis, rating_basis
from app.domain.lifecycle.entities import Assignment, Instance
from app.domain.lifecycle.instance import TERMINAL_INSTANCE_STATES
from app.domain.market.attachments import Attachments
from app.domain.market.price_book import PriceBook, PricePoint, PriceSegment

PointRow = tuple[datetime, int, str, datetime]
"""(at, micro-USD per hour, source, captured_at), as the store hands it out."""


def never_ran(instance: Instance) -> bool:
    """Whether the row ended without the cloud ever having started a machine: nothing is owed."""
    return instance.state in TERMINAL_INSTANCE_STATES and instance.launched_at is None


def machine_facts(
    instance: Instance, assignments: Iterable[Assignment], transfers: Iterable[Transfer] = ()
) -> MachineFacts:
    """What the bill needs to know of an instance.

    A machine whose pool was offered without prices of disk and address is not billed for them.
    """
    attached = None if instance.attachments is None else Attachments.from_json(instance.attachments)
    return MachineFacts(
        instance_id=instance.id,
        market=instance.market,
        started_at=instance.launched_at,
        started_source=instance.launched_source,
        ended_at=instance.ended_at,
        ended_source=instance.ended_source,
        ended_by=instance.ended_by,
        assignments=_spans(instance, assignments),
        disk=None if attached is None else _disk(attached),
        public_ip=None if attached is None else _address(attached),
        transfers=tuple(transfers),
    )


def _disk(attached: Attachments) -> DiskRate | None:
    """The disk's part; None when it is free."""
    size, price = attached.disk_gb, attached.disk_microusd_per_gb_month
    speed = attached.disk_microusd_per_month
    if size * price + speed == 0:
        return None
    return DiskRate(size, price, attached.source, attached.captured_at, speed)


def _address(attached: Attachments) -> AddressRate | None:
    """The public address's part; None when there is none, or it is free."""
    price = attached.public_ip_microusd_per_hour
    return AddressRate(price, attached.source, attached.captured_at) if price else None


def _spans(instance: Instance, assignments: Iterable[Assignment]) -> tuple[AssignmentSpan, ...]:
    """The assignments, by start; the last one is open where it reaches the machine's end.

    The run ends there anyway, and the payer of a machine that ran for no time at all still owes
    its minimum charge.
    """
    ordered = sorted(assignments, key=lambda span: (span.from_at, span.id))
    spans = [
        AssignmentSpan(span.id, span.job_id, span.attempt_id, span.from_at, span.to_at)
        for span in ordered
    ]
    started, ended = instance.launched_at, instance.ended_at
    if spans and started is not None and ended is not None:
        last = spans[-1]
        if last.to_at is not None and last.to_at >= max(started, ended):
            spans[-1] = replace(last, to_at=None)
    return tuple(spans)


def machine_rules(instance: Instance) -> BillingRules:
    """How the instance's cloud counts time. Raises LookupError when no cloud is recorded."""
    if instance.cloud is None:
        raise LookupError(f"instance {instance.id} has no cloud, so no billing rules apply to it")
    return rules_for(instance.cloud).at_speed(instance.billing_speed)


@dataclass(frozen=True, slots=True)
class RatedMachine:
    """All inputs of one machine's bill; `previous` is the basis of what is booked so far."""

    facts: MachineFacts
    book: PriceBook
    rules: BillingRules
    previous: RatingBasis | None

    @classmethod
    def of(
        cls,
        instance: Instance,
        assignments: Iterable[Assignment],
        points: Iterable[PointRow],
        transfers: Iterable[Transfer] = (),
    ) -> RatedMachine:
        """From rows. Raises LookupError for an instance without a known cloud."""
        stored = instance.rating
        return cls(
            machine_facts(instance, assignments, transfers),
            PriceBook.of(PricePoint(*point) for point in points),
            machine_rules(instance),
            None if stored is None else RatingBasis.from_json(stored),
        )

    @property
    def booked_until_at(self) -> datetime | None:
        """Up to when the ledger holds this machine's bill."""
        return None if self.previous is None else self.previous.until_at

    def billable_until(self, now: datetime) -> datetime:
        """Up to when there is something to bill: now, or the machine's end."""
        started, ended = self.facts.started_at, self.facts.ended_at
        if started is None or ended is None:
            return now
        return min(now, max(started, ended))

    def segments(self, until: datetime) -> tuple[PriceSegment, ...]:
        """Prices from the machine's start up to `until`. Raises UnknownPrice."""
        started = self.facts.started_at
        return () if started is None else self.book.segments(started, max(started, until))

    def close(self, booked: Mapping[LedgerKey, int], now: datetime) -> ClosedBooks:
        """The entries that bring what is booked to the bill as of `now`. Raises UnknownPrice."""
        until = self.billable_until(now)
        reach = until if self.previous is None else max(until, self.previous.until_at)
        return close_books(
            self.facts,
            self.segments(reach),
            self.rules,
            until=until,
            booked=booked,
            previous=self.previous,
        )

    def lines(self, until: datetime, *, waived: bool = True) -> tuple[BillLine, ...]:
        """The bill's lines up to `until`; `waived=False`: as if the cloud waived nothing."""
        rules = self.rules
        if not waived:
            rules = replace(rules, free_if_interrupted_within_seconds=0)
        return rate(self.facts, self.segments(until), rules, until)

    def waived_microusd(self, job_id: UUID | None) -> int:
        """What the cloud has not charged a job for this machine's compute, as it is booked.

        job_id: None for the seconds that nobody pays. 0 for a machine that is charged.
        """
        if self.previous is None or not self.previous.waived:
            return 0
        own: set[UUID | None] = {
            span.assignment_id for span in self.facts.assignments if span.job_id == job_id
        }
        if job_id is None:
            own.add(None)  # seconds that nobody was assigned
        return sum(
            line.amount_microusd
            for line in self.lines(self.previous.until_at, waived=False)
            if line.key.component is Component.COMPUTE and line.key.assignment_id in own
        )

    def is_revised(self) -> bool:
        """Whether facts, prices or rules changed for time that is booked: an entry is due."""
        if self.previous is None:
            return False
        until = self.previous.until_at
        now = rating_basis(self.facts, self.segments(until), self.rules, until)
        return now != self.previous
