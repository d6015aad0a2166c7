"""Compare the rollup with the ledger, some machines at a time, round and round.

Reports read the rollup alone; this is why they may. A pass takes every machine once, and what
differs is kept per machine and day, for the reports to show together with the time of the last
whole pass. Not here: the comparison (`store.books`), or the verification that a person asks for
and that makes every bill again (`app.storage.money.cost_figures`).
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from app.domain.notifications.triggers import Trigger
from app.domain.units.instants import day_of
from app.orchestration.frame.controller_frame import RowController
from app.orchestration.frame.tell_channels import tell_of_deployment
from app.storage.money.ledger_audit_store import BooksPass
from app.storage.unit_of_work import UnitOfWork

CHECK_CONTROLLER: Final = "check_books"
MACHINES_PER_SLICE: Final = 50
BETWEEN_SLICES: Final = timedelta(seconds=5)
BETWEEN_PASSES: Final = timedelta(hours=1)
BETWEEN_SMALL_PASSES: Final = timedelta(minutes=5)
"""Of one slice: who has just begun sees within minutes that the first bookings are right."""


class CheckBooks(RowController[BooksPass]):
    """The controller that looks whether rollup and ledger agree."""

    name = CHECK_CONTROLLER
    # There is one piece at most; a limit of 1 would ring for the next one at once.
    limit = 2

    def select(self, uow: UnitOfWork, limit: int) -> list[BooksPass]:
        """The pass, when its next slice is due."""
        found = uow.books.progress() or BooksPass(next_at=uow.now)
        return [found] if found.next_at <= uow.now else []

    def next_due(self, uow: UnitOfWork) -> datetime | None:
        """When the next slice is due."""
        found = uow.books.progress()
        return uow.now if found is None else found.next_at

    def apply(self, uow: UnitOfWork, work: BooksPass, result: None) -> None:
        """Compare one slice, unless another worker has."""
        now = uow.now
        found = uow.books.progress(lock=True) or BooksPass(next_at=now)
        if found.next_at > now:
            return
        # Read before anything is compared: what is committed after it was booked after it, too.
        begun_at = found.begun_at or uow.books.committed_until(now)
        compared = uow.books.compare(found.after_id, MACHINES_PER_SLICE, now)
        self._tell(uow, compared)
        machines = found.machines + len(compared)
        if len(compared) == MACHINES_PER_SLICE:
            found = replace(
                found,
                next_at=now + BETWEEN_SLICES,
                begun_at=begun_at,
                after_id=compared[-1],
                machines=machines,
            )
        else:
            small = machines < MACHINES_PER_SLICE
            found = BooksPass(
                next_at=now + (BETWEEN_SMALL_PASSES if small else BETWEEN_PASSES),
                # A pass with an old transaction beside it reaches less far than the one before.
                checked_at=max(begun_at, min(found.checked_at or begun_at, now)),
                checked_machines=machines,
            )
        uow.books.save_progress(found)

    def _tell(self, uow: UnitOfWork, compared: list[UUID]) -> None:
        """Tell of differences once a day, as the same ones are found by every pass."""
        lines = uow.books.count_differences(compared)
        if lines:
            reason = (
                f"The comparison has found {lines:,} lines of reports that differ from the ledger. "
                "`lowtide cost verify` makes every bill again and says where."
            )
            occasion = f"books/{day_of(uow.now)}"
            entropy = self._runtime.entropy
            tell_of_deployment(uow, entropy, Trigger.BOOKS_DIFFER, reason, occasion)
