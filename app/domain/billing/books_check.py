"""Whether the sums of a report were compared with the ledger, and how much of them was.

Lives here: the verdict, and its sentence. A verdict never says more than was compared: what was
booked since then is not checked yet. Not here: the comparison (`money.check_books`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from app.domain.units.durations import MINUTE_SECONDS, format_duration
from app.domain.units.instants import clock_time, format_instant
from app.domain.units.money import format_usd

_DIME_MICROUSD = 100_000
_TENTH_OF_A_CENT_MICROUSD = 1_000


class BooksVerdict(StrEnum):
    """What is known of a report's sums."""

    NOTHING_BOOKED = "nothing_booked"
    NOT_CHECKED = "not_checked"  # all of it was booked after the last check, or there was none
    PARTLY_CHECKED = "partly_checked"  # what was checked agrees; more was booked since
    CLOSED = "closed"  # all of it was checked, and agrees
    NOT_CLOSED = "not_closed"  # what was checked differs


@dataclass(frozen=True, slots=True)
class BooksCheck:
    """The last check, as it covers one report. Money in micro-USD.

    checked_at: the last whole check of the deployment has seen whatever was booked by then; None
    before the first.
    checked_microusd, checked_entries: the report's part that was booked by then; unchecked_…: what
    was booked since, the first of it at unchecked_from_at; None where that is not known.
    difference_microusd: what the report has more than the ledger.
    """

    checked_at: datetime | None
    checked_microusd: int
    checked_entries: int
    unchecked_microusd: int
    unchecked_entries: int
    difference_microusd: int
    unchecked_from_at: datetime | None = None

    @property
    def verdict(self) -> BooksVerdict:
        """In one word."""
        if self.difference_microusd:
            return BooksVerdict.NOT_CLOSED
        if self.checked_at is None or not self.checked_entries:
            booked = self.unchecked_entries or self.checked_entries
            return BooksVerdict.NOT_CHECKED if booked else BooksVerdict.NOTHING_BOOKED
        return BooksVerdict.PARTLY_CHECKED if self.unchecked_entries else BooksVerdict.CLOSED

    def sentence(self, now: datetime) -> str:
        """For people: what was checked and when, and what was not."""
        verdict = self.verdict
        if verdict is BooksVerdict.NOTHING_BOOKED:
            return "nothing is booked yet, so there is nothing to check"
        if verdict is BooksVerdict.NOT_CHECKED:
            return self._unchecked(now)
        difference = f"difference {format_usd(self.difference_microusd, 6)}"
        text = f"{format_usd(self.checked_microusd, 6)} checked {self._when(now)}, {difference}"
        if verdict is BooksVerdict.CLOSED:
            return f"closed: {text}"
        if verdict is BooksVerdict.NOT_CLOSED:
            text = f"NOT CLOSED: {text}"
        return f"{text}; {self._unchecked(now)}" if self.unchecked_entries else text

    def _unchecked(self, now: datetime) -> str:
        size = abs(self.unchecked_microusd)
        places = 2 if size >= _DIME_MICROUSD else 3 if size >= _TENTH_OF_A_CENT_MICROUSD else 6
        amount = format_usd(self.unchecked_microusd, places)
        if self.unchecked_from_at is None:
            return f"not checked yet ({amount})"
        # The check is of the whole deployment: it may be older than the job that is reported.
        return f"not checked yet (since {_clock(self.unchecked_from_at, now)}, {amount})"

    def _when(self, now: datetime) -> str:
        assert self.checked_at is not None
        minutes = max(0, int((now - self.checked_at).total_seconds())) // MINUTE_SECONDS
        age = f"{format_duration(minutes * MINUTE_SECONDS)} ago" if minutes else "just now"
        return f"at {_clock(self.checked_at, now)} ({age})"


def _clock(at: datetime, now: datetime) -> str:
    """The time of day in UTC, with its day where that is another one."""
    today = at.astimezone(UTC).date() == now.astimezone(UTC).date()
    return clock_time(at) if today else format_instant(at)
