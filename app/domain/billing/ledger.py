"""The entries that bring the ledger to the bill.

Lives here: one rule. For each cell, an entry is what the bill says now, less what is already
booked there. So waivers, minimum charges, late prices and corrected ends need no code of their
own, and the sum of a machine's entries is its bill after every closing.
Not here: the bill and its rounding (`billing`), the store (an append-only table), the report
(`cost_statement`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from functools import partial

from app.domain.billing.billing import BillKey, BillLine, Component, rate
from app.domain.billing.billing_rules import BillingRules
from app.domain.billing.machine_facts import MachineFacts
from app.domain.billing.rating_basis import AdjustmentReason, RatingBasis, rating_basis, reason_for
from app.domain.billing.usage_segments import HOUR
from app.domain.market.price_book import PriceSegment

LedgerKey = BillKey
"""The ledger has the bill's cells."""


class EntryKind(StrEnum):
    """accrual: only time went on. adjustment: something that was booked turned out otherwise."""

    ACCRUAL = "accrual"
    ADJUSTMENT = "adjustment"


@dataclass(frozen=True, slots=True)
class Entry:
    """One line to append. `estimated`: a time in it is our observation, not the cloud's word.

    An adjustment spans all of its cell's usage; an accrual, what passed since the last one.
    """

    kind: EntryKind
    key: LedgerKey
    amount_microusd: int
    usage_from_at: datetime
    usage_to_at: datetime
    price_source: str
    price_captured_at: datetime
    rule_id: str
    estimated: bool
    reason: AdjustmentReason | None = None

    def __post_init__(self) -> None:
        if (self.kind is EntryKind.ADJUSTMENT) != (self.reason is not None):
            raise ValueError(f"ledger entry {self.key}: an adjustment, and only that, has a reason")
        if self.kind is EntryKind.ACCRUAL and self.amount_microusd <= 0:
            raise ValueError(f"ledger entry {self.key}: an accrual only adds")


@dataclass(frozen=True, slots=True)
class ClosedBooks:
    """The entries to append, and the basis to store for the next closing."""

    entries: tuple[Entry, ...]
    basis: RatingBasis


def close_books(
    facts: MachineFacts,
    prices: Sequence[PriceSegment],
    rules: BillingRules,
    *,
    until: datetime,
    booked: Mapping[LedgerKey, int],
    previous: RatingBasis | None,
) -> ClosedBooks:
    """Entries that bring `booked` (micro-dollars per cell of this machine) to the bill.

    `previous` is the basis of the last closing, None for the first. When an input changed for
    time that is booked, that comes first, as adjustments up to the last closing; what passed
    since then follows. Closing never goes back: an earlier `until` counts as the last one.
    Raises as `billing.rate`.
    """
    entries: list[Entry] = []
    standing = dict(booked)
    if previous is None:
        basis = rating_basis(facts, prices, rules, until)
        # A first closing starts from nothing: no waiver, no minimum.
        then, since = replace(basis, waived=False, minimum_applied=False), None
    else:
        since, until = previous.until_at, max(until, previous.until_at)
        then = rating_basis(facts, prices, rules, since)
        basis = rating_basis(facts, prices, rules, until)
        if then != previous:
            lines = rate(facts, prices, rules, since)
            entries += entries_to_close(
                lines, standing, facts, rules, reason=partial(reason_for, previous, then)
            )
            standing = dict.fromkeys(standing, 0) | _amounts(lines)
    lines = rate(facts, prices, rules, until)
    entries += entries_to_close(
        lines, standing, facts, rules, reason=partial(reason_for, then, basis), since=since
    )
    return ClosedBooks(tuple(entries), basis)


def entries_to_close(
    lines: Sequence[BillLine],
    booked: Mapping[LedgerKey, int],
    facts: MachineFacts,
    rules: BillingRules,
    *,
    reason: Callable[[Component], AdjustmentReason | None],
    since: datetime | None = None,
) -> tuple[Entry, ...]:
    """One entry for each cell whose bill differs from what is booked; cells in the bill's order.

    `reason` says why a component's cells moved; None means that only time went on, since `since`,
    and makes an accrual. A cell that is booked and no longer in the bill goes to 0. A cell that
    falls without a reason (its basis was lost) is an adjustment all the same: `reassigned` when
    the cells of that component and hour keep their sum, else `price_revised`.
    """
    billed = _amounts(lines)
    vanished = sorted((key for key in booked if key not in billed), key=_order)
    cells = [*lines, *(_vanished_line(key, lines) for key in vanished)]
    entries: list[Entry] = []
    for line in cells:
        difference = line.amount_microusd - booked.get(line.key, 0)
        if difference == 0:
            continue
        why = reason(line.key.component)
        if why is None and (difference < 0 or line.key not in billed):
            why = _unexplained(line.key, billed, booked)
        usage_from_at = line.usage_from_at
        if why is None and since is not None:
            usage_from_at = min(max(usage_from_at, since), line.usage_to_at)
        entries.append(
            Entry(
                EntryKind.ACCRUAL if why is None else EntryKind.ADJUSTMENT,
                line.key,
                difference,
                usage_from_at,
                line.usage_to_at,
                line.price_source,
                line.price_captured_at,
                rules.id,
                facts.times_estimated or line.estimated,
                why,
            )
        )
    return tuple(entries)


def _amounts(lines: Sequence[BillLine]) -> dict[LedgerKey, int]:
    return {line.key: line.amount_microusd for line in lines}


def _order(key: LedgerKey) -> tuple[str, datetime, str]:
    return (key.component, key.usage_hour_at, str(key.assignment_id or ""))


def _vanished_line(key: LedgerKey, lines: Sequence[BillLine]) -> BillLine:
    """A booked cell that the bill no longer has: zero for its whole usage hour."""
    alike = [line for line in lines if line.key.component is key.component]
    source, captured_at = ("none", key.usage_hour_at)
    if alike:
        source, captured_at = alike[-1].price_source, alike[-1].price_captured_at
    return BillLine(key, 0, key.usage_hour_at, key.usage_hour_at + HOUR, source, captured_at)


def _unexplained(
    key: LedgerKey, billed: Mapping[LedgerKey, int], booked: Mapping[LedgerKey, int]
) -> AdjustmentReason:
    def total(amounts: Mapping[LedgerKey, int]) -> int:
        return sum(
            amount
            for other, amount in amounts.items()
            if (other.component, other.usage_hour_at) == (key.component, key.usage_hour_at)
        )

    same = total(billed) == total(booked)
    return AdjustmentReason.REASSIGNED if same else AdjustmentReason.PRICE_REVISED
