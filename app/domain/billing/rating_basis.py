"""What a bill was computed from, in a form small enough to store with the machine.

Lives here: the basis, and which of its parts explains a difference. Not here: the bill
(`billing`) or the entries (`ledger`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from app.domain.billing.billing import Component, counted_transfers, is_waived, minimum_applies
from app.domain.billing.billing_rules import BillingRules
from app.domain.billing.machine_facts import MachineFacts
from app.domain.billing.usage_segments import BillableRun, billable_run
from app.domain.lifecycle.stored_documents import RatingDocument
from app.domain.market.price_book import PriceSegment


class AdjustmentReason(StrEnum):
    """Why an entry is more than the passing of time."""

    WAIVER = "waiver"
    MINIMUM = "minimum"
    PRICE_REVISED = "price_revised"  # a late or corrected price, or another billing rule
    END_REVISED = "end_revised"  # another end, or another start, than we had billed
    REASSIGNED = "reassigned"


@dataclass(frozen=True, slots=True)
class RatingBasis:
    """The inputs of a bill as seen at `until_at`.

    The digests cover the billed run only and do not see how it is cut into segments, so that a
    new price, assignment or end after `until_at` leaves an earlier basis as it was.
    """

    until_at: datetime
    run_from_at: datetime | None
    run_to_at: datetime | None
    waived: bool
    minimum_applied: bool
    price_digest: str
    assignments_digest: str
    transfers_digest: str

    def to_json(self) -> RatingDocument:
        """A JSON object; `from_json` reads it back equal."""
        run_from_at, run_to_at = self.run_from_at, self.run_to_at
        return {
            "until_at": self.until_at.isoformat(),
            "run_from_at": None if run_from_at is None else run_from_at.isoformat(),
            "run_to_at": None if run_to_at is None else run_to_at.isoformat(),
            "waived": self.waived,
            "minimum_applied": self.minimum_applied,
            "price_digest": self.price_digest,
            "assignments_digest": self.assignments_digest,
            "transfers_digest": self.transfers_digest,
        }

    @classmethod
    def from_json(cls, stored: RatingDocument) -> RatingBasis:
        """The basis that `to_json` wrote. Raises KeyError or ValueError for anything else."""
        run_from, run_to = stored["run_from_at"], stored["run_to_at"]
        return cls(
            datetime.fromisoformat(stored["until_at"]),
            None if run_from is None else datetime.fromisoformat(run_from),
            None if run_to is None else datetime.fromisoformat(run_to),
            stored["waived"],
            stored["minimum_applied"],
            stored["price_digest"],
            stored["assignments_digest"],
            stored["transfers_digest"],
        )


def rating_basis(
    facts: MachineFacts, prices: Sequence[PriceSegment], rules: BillingRules, until: datetime
) -> RatingBasis:
    """What `bill(facts, prices, rules, until)` rests on."""
    run = billable_run(facts, until)
    return RatingBasis(
        until,
        run.from_at if run else None,
        run.to_at if run else None,
        is_waived(facts, rules, until),
        minimum_applies(facts, rules, until),
        _price_digest(facts, prices, rules, run),
        _assignments_digest(facts, run),
        _transfers_digest(facts, run),
    )


def reason_for(
    previous: RatingBasis, current: RatingBasis, component: Component
) -> AdjustmentReason | None:
    """What, besides the passing of time, moved a component's cost from one basis to the next.

    None: nothing did. A waiver touches compute alone: disk and address are charged all the same
    (EC2 User Guide, "Billing for interrupted Spot Instances", additional charges). For two bases
    of the same `until_at` every part counts. For a later `current`, only what can happen to a
    machine in between: its end inside the free window or before the minimum.
    """
    if component is Component.COMPUTE and previous.waived != current.waived:
        return AdjustmentReason.WAIVER
    if component is Component.EGRESS:
        # What was told late is usage all the same: only who pays for it may turn out otherwise.
        if previous.until_at != current.until_at:
            return None
        moved = previous.assignments_digest != current.assignments_digest
        return AdjustmentReason.REASSIGNED if moved else None
    if previous.minimum_applied != current.minimum_applied:
        return AdjustmentReason.MINIMUM
    if previous.until_at != current.until_at:
        return None
    if (previous.run_from_at, previous.run_to_at) != (current.run_from_at, current.run_to_at):
        return AdjustmentReason.END_REVISED
    if previous.price_digest != current.price_digest:
        return AdjustmentReason.PRICE_REVISED
    if previous.assignments_digest != current.assignments_digest:
        return AdjustmentReason.REASSIGNED
    return None


def _price_digest(
    facts: MachineFacts,
    prices: Sequence[PriceSegment],
    rules: BillingRules,
    run: BillableRun | None,
) -> str:
    steps: list[str] = []
    if run is not None:
        last: int | None = None
        for price in prices:
            from_at = max(price.from_at, run.from_at)
            outside = from_at >= min(price.to_at, run.to_at) and run.from_at < run.to_at
            if outside or price.microusd_per_hour == last:
                continue
            last = price.microusd_per_hour
            steps.append(f"{_instant(from_at)} {last}")
    disk, address = facts.disk, facts.public_ip
    steps.append(f"disk {disk.size_gb} {disk.microusd_per_gb_month}" if disk else "no disk")
    if disk is not None and disk.microusd_per_month:
        steps.append(f"disk speed {disk.microusd_per_month}")
    steps.append(f"address {address.microusd_per_hour}" if address else "no address")
    return _digest([*steps, repr(rules)])


def _transfers_digest(facts: MachineFacts, run: BillableRun | None) -> str:
    return _digest(
        f"{_instant(one.at)} {one.size_bytes} {one.microusd_per_gb}"
        for one in counted_transfers(facts, run)
    )


def _assignments_digest(facts: MachineFacts, run: BillableRun | None) -> str:
    if run is None:
        return _digest([])
    payers: list[str] = []
    for span in sorted(facts.assignments, key=lambda span: span.from_at):
        from_at = max(span.from_at, run.from_at)
        to_at = min(span.to_at or run.to_at, run.to_at)
        if from_at < to_at:
            payers.append(f"{_instant(from_at)} {_instant(to_at)} {span.assignment_id}")
    return _digest(payers)


def _instant(instant: datetime) -> str:
    return instant.astimezone(UTC).isoformat()


def _digest(parts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]
