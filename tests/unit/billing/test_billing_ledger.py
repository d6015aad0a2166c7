"""Entries and the reasons they give: what people read when a booked amount changes."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from app.domain.billing.billing import BillKey, Component
from app.domain.billing.billing_rules import EC2_RULES, BillingRules
from app.domain.billing.ledger import Entry, EntryKind, close_books
from app.domain.billing.machine_facts import AssignmentSpan, DiskRate, MachineFacts, TimeSource
from app.domain.billing.rating_basis import AdjustmentReason, RatingBasis
from app.domain.lifecycle.instance import EndedBy
from app.domain.market.offer import Market
from app.domain.market.price_book import PriceBook, PricePoint

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
MACHINE, FIRST, SECOND = UUID(int=1), UUID(int=11), UUID(int=12)
PRICE = 3_600_000  # 1,000 micro-dollars a second
BOOK = PriceBook.of([PricePoint(START, PRICE, "trace", START)])


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


FACTS = MachineFacts(
    instance_id=MACHINE,
    market=Market.SPOT,
    started_at=START,
    assignments=(AssignmentSpan(FIRST, None, None, START),),
)


class Books:
    """One machine's ledger; each closing may bring other facts, prices or rules."""

    def __init__(self) -> None:
        self.booked: dict[BillKey, int] = {}
        self.basis: RatingBasis | None = None

    def close(
        self,
        seconds: float,
        facts: MachineFacts = FACTS,
        book: PriceBook = BOOK,
        rules: BillingRules = EC2_RULES,
    ) -> list[tuple[EntryKind, AdjustmentReason | None, int]]:
        return [
            (e.kind, e.reason, e.amount_microusd) for e in self.entries(seconds, facts, book, rules)
        ]

    def entries(
        self,
        seconds: float,
        facts: MachineFacts = FACTS,
        book: PriceBook = BOOK,
        rules: BillingRules = EC2_RULES,
    ) -> tuple[Entry, ...]:
        prices = book.segments(START, after(90_000))
        closed = close_books(
            facts, prices, rules, until=after(seconds), booked=self.booked, previous=self.basis
        )
        for entry in closed.entries:
            self.booked[entry.key] = self.booked.get(entry.key, 0) + entry.amount_microusd
        self.basis = closed.basis
        return closed.entries


ACCRUAL, ADJUSTMENT = EntryKind.ACCRUAL, EntryKind.ADJUSTMENT


def test_time_alone_accrues_only_what_passed() -> None:
    books = Books()
    assert books.close(60) == [(ACCRUAL, None, 60_000)]
    (entry,) = books.entries(100)
    assert (entry.kind, entry.amount_microusd) == (ACCRUAL, 40_000)
    assert (entry.usage_from_at, entry.usage_to_at) == (after(60), after(100))
    assert (entry.rule_id, entry.price_source, entry.estimated) == ("ec2", "trace", False)
    assert books.close(100) == []
    assert books.close(50) == []  # closing never goes back


def test_an_end_that_was_not_yet_booked_is_an_accrual() -> None:
    books = Books()
    books.close(100)
    ended = replace(FACTS, ended_at=after(130), ended_by=EndedBy.US)
    assert books.close(200, ended) == [(ACCRUAL, None, 30_000)]
    assert books.close(900, ended) == []


def test_a_waiver_takes_back_compute_and_goes_on_with_the_disk() -> None:
    disk = DiskRate(730, 80_000, "list", START)
    running = replace(FACTS, disk=disk)
    taken = replace(running, ended_at=after(1800), ended_by=EndedBy.CLOUD_INTERRUPTION)
    books = Books()
    books.close(900, running)
    assert books.close(1800, taken) == [
        (ADJUSTMENT, AdjustmentReason.WAIVER, -900_000),
        (ACCRUAL, None, 20_000),
    ]


def test_a_waiver_learned_late_takes_back_all_that_is_booked() -> None:
    books = Books()
    books.close(1000)
    taken = replace(FACTS, ended_at=after(700), ended_by=EndedBy.CLOUD_INTERRUPTION)
    assert books.close(1100, taken) == [(ADJUSTMENT, AdjustmentReason.WAIVER, -1_000_000)]
    ours = replace(taken, ended_by=EndedBy.US)
    assert books.close(1200, ours) == [(ADJUSTMENT, AdjustmentReason.WAIVER, 700_000)]


def test_the_minimum_is_an_adjustment() -> None:
    books = Books()
    books.close(5)
    ended = replace(FACTS, ended_at=after(10), ended_by=EndedBy.US)
    assert books.close(20, ended) == [(ADJUSTMENT, AdjustmentReason.MINIMUM, 55_000)]
    assert Books().close(20, ended) == [(ADJUSTMENT, AdjustmentReason.MINIMUM, 60_000)]


def test_a_late_price_corrects_the_past_and_then_accrues() -> None:
    books = Books()
    books.close(100)
    late = PriceBook.of([*BOOK.points, PricePoint(after(50), 2 * PRICE, "api", after(110))])
    assert books.close(120, book=late) == [
        (ADJUSTMENT, AdjustmentReason.PRICE_REVISED, 50_000),
        (ACCRUAL, None, 40_000),
    ]


def test_a_new_price_for_unbooked_time_is_no_correction() -> None:
    books = Books()
    books.close(100)
    later = PriceBook.of([*BOOK.points, PricePoint(after(110), 2 * PRICE, "api", after(110))])
    assert books.close(120, book=later) == [(ACCRUAL, None, 30_000)]


def test_an_earlier_end_gives_money_back() -> None:
    books = Books()
    books.close(300)
    ended = replace(
        FACTS,
        ended_at=after(200),
        ended_by=EndedBy.US,
        ended_source=TimeSource.FIRST_SEEN_GONE,
    )
    (entry,) = books.entries(360, ended)
    assert (entry.reason, entry.amount_microusd) == (AdjustmentReason.END_REVISED, -100_000)
    assert entry.estimated
    corrected = replace(ended, ended_at=after(250), ended_source=TimeSource.STATE_CHANGE_EVENT)
    assert books.close(900, corrected) == [(ADJUSTMENT, AdjustmentReason.END_REVISED, 50_000)]


def test_a_corrected_start_is_an_end_of_the_run_revised_too() -> None:
    books = Books()
    books.close(300)
    later = replace(FACTS, started_at=after(20))
    assert books.close(300, later) == [(ADJUSTMENT, AdjustmentReason.END_REVISED, -20_000)]


def test_seconds_given_to_another_assignment_move_without_changing_the_sum() -> None:
    books = Books()
    books.close(300)
    moved = replace(
        FACTS,
        assignments=(
            AssignmentSpan(FIRST, None, None, START, after(200)),
            AssignmentSpan(SECOND, None, None, after(200)),
        ),
    )
    assert books.close(300, moved) == [
        (ADJUSTMENT, AdjustmentReason.REASSIGNED, -100_000),
        (ADJUSTMENT, AdjustmentReason.REASSIGNED, 100_000),
    ]


def test_a_cell_that_left_the_bill_goes_to_zero_for_its_hour() -> None:
    books = Books()
    books.close(300)
    moved = replace(FACTS, assignments=(AssignmentSpan(SECOND, None, None, START),))
    entries = books.entries(300, moved)
    assert [(e.key.assignment_id, e.amount_microusd) for e in entries] == [
        (SECOND, 300_000),
        (FIRST, -300_000),
    ]
    assert entries[1].usage_to_at - entries[1].usage_from_at == timedelta(hours=1)
    assert all(e.reason is AdjustmentReason.REASSIGNED for e in entries)
    assert books.close(400, moved) == [(ACCRUAL, None, 100_000)]


def test_other_rules_are_a_revised_price() -> None:
    books = Books()
    books.close(300)
    faster = EC2_RULES.at_speed(2)
    assert books.close(300, rules=faster) == [(ADJUSTMENT, AdjustmentReason.PRICE_REVISED, 300_000)]


def test_without_a_basis_a_fall_is_still_an_adjustment() -> None:
    books = Books()
    books.close(300)
    books.basis = None
    ended = replace(FACTS, ended_at=after(200), ended_by=EndedBy.US)
    assert books.close(400, ended) == [(ADJUSTMENT, AdjustmentReason.PRICE_REVISED, -100_000)]


def test_the_basis_survives_storage() -> None:
    books = Books()
    books.close(300)
    assert books.basis is not None
    assert RatingBasis.from_json(books.basis.to_json()) == books.basis


def test_an_entry_must_be_what_it_says() -> None:
    (entry,) = Books().entries(10)
    with pytest.raises(ValueError, match="an accrual only adds"):
        replace(entry, amount_microusd=-1)
    with pytest.raises(ValueError, match="has a reason"):
        replace(entry, kind=EntryKind.ADJUSTMENT)
    assert entry.key.component is Component.COMPUTE
