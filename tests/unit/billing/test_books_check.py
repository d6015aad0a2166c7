"""What is said of the books: never more than was compared, and never without saying when."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from app.domain.billing.books_check import BooksCheck, BooksVerdict

AT = datetime(2026, 3, 1, 16, 18, 25, tzinfo=UTC)
BOOKED_AT = AT + timedelta(seconds=42)
NOW = AT + timedelta(minutes=47)


def check(
    checked: tuple[int, int], since: tuple[int, int], difference: int = 0, at: datetime | None = AT
) -> BooksCheck:
    first_at = BOOKED_AT if at is not None and since[1] else None
    return BooksCheck(at, *checked, *since, difference, first_at)


@pytest.mark.parametrize(
    ("found", "verdict", "sentence"),
    [
        (
            check((0, 0), (860_000, 12)),
            BooksVerdict.NOT_CHECKED,
            "not checked yet (since 16:19:07 UTC, $0.86)",
        ),
        (
            check((0, 0), (860_000, 12), at=None),
            BooksVerdict.NOT_CHECKED,
            "not checked yet ($0.86)",
        ),
        (
            check((0, 0), (15_300, 2)),
            BooksVerdict.NOT_CHECKED,
            "not checked yet (since 16:19:07 UTC, $0.015)",
        ),
        (
            check((0, 0), (0, 0)),
            BooksVerdict.NOTHING_BOOKED,
            "nothing is booked yet, so there is nothing to check",
        ),
        (
            check((3_100_000, 40), (0, 0)),
            BooksVerdict.CLOSED,
            "closed: $3.100000 checked at 16:18:25 UTC (47m ago), difference $0.000000",
        ),
        (
            check((3_100_000, 40), (860_000, 12)),
            BooksVerdict.PARTLY_CHECKED,
            "$3.100000 checked at 16:18:25 UTC (47m ago), difference $0.000000; "
            "not checked yet (since 16:19:07 UTC, $0.86)",
        ),
        (
            check((3_100_000, 40), (860_000, 12), -7),
            BooksVerdict.NOT_CLOSED,
            "NOT CLOSED: $3.100000 checked at 16:18:25 UTC (47m ago), difference -$0.000007; "
            "not checked yet (since 16:19:07 UTC, $0.86)",
        ),
    ],
)
def test_each_verdict_has_its_sentence(
    found: BooksCheck, verdict: BooksVerdict, sentence: str
) -> None:
    assert found.verdict is verdict
    assert found.sentence(NOW) == sentence


def test_entries_that_even_out_are_not_checked_either() -> None:
    waived = check((3_100_000, 40), (0, 2))
    assert waived.verdict is BooksVerdict.PARTLY_CHECKED
    assert waived.sentence(NOW).endswith("not checked yet (since 16:19:07 UTC, $0.000000)")
    assert check((0, 2), (0, 0)).verdict is BooksVerdict.CLOSED
    assert check((0, 0), (0, 2)).verdict is BooksVerdict.NOT_CHECKED
    assert check((0, 2), (0, 0), at=None).verdict is BooksVerdict.NOT_CHECKED


def test_what_is_not_checked_begins_with_its_first_booking_however_old_the_check_is() -> None:
    """The check is of the whole deployment, and may be older than the job that is reported."""
    submitted_at = NOW - timedelta(minutes=2)
    found = BooksCheck(AT, 0, 0, 860_000, 12, 0, submitted_at + timedelta(seconds=30))
    assert found.sentence(NOW) == "not checked yet (since 17:03:55 UTC, $0.86)"


def test_a_check_of_another_day_names_its_day() -> None:
    closed = check((1, 1), (0, 0))
    assert "checked at 2026-03-01 16:18:25 UTC (8h 2m ago)" in closed.sentence(
        AT + timedelta(hours=8, minutes=2, seconds=20)
    )
    assert "(just now)" in closed.sentence(AT + timedelta(seconds=59))
