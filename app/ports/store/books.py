"""The comparison of ledger and rollup, machine by machine: what is asked of the store for it.

Lives here: how far the comparison has come, and the part of the unit of work that makes it. Not
here: when it is made (`app.orchestration.money.check_books`), or reports (`read_models`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID


@dataclass(frozen=True)
class BooksPass:
    """How far the comparison has come.

    begun_at: whatever was booked by then was committed when the pass under way began; None between
    two passes. after_id: the last machine it has compared. checked_at: the same of the last pass
    that reached the end, so that whatever was booked by then is compared; None before the first.
    """

    next_at: datetime
    begun_at: datetime | None = None
    after_id: UUID | None = None
    machines: int = 0
    checked_at: datetime | None = None
    checked_machines: int = 0


class Books(Protocol):
    """Ledger against rollup."""

    def progress(self, *, lock: bool = False) -> BooksPass | None:
        """How far the comparison has come; None before the first. lock: against another worker."""
        ...

    def save_progress(self, progress: BooksPass) -> None:
        """Remember it."""
        ...

    def committed_until(self, now: datetime) -> datetime:
        """The latest instant, `now` at most, by which whatever was booked is committed: an open
        transaction may still commit what it books at any time since its own start."""
        ...

    def compare(self, after_id: UUID | None, limit: int, now: datetime) -> list[UUID]:
        """Compare the next machines by id and keep the differences found, in place of those found
        before; the machines compared, fewer than `limit` at the end."""
        ...
