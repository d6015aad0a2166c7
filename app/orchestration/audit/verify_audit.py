"""Verify the audit: rows against seals, seals against each other and against their copies outside.

In parts, so that no request takes long: each goes on after the seal that the one before ended on.
Not here: what is compared (`app.domain.audit.seal_check`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Final
from uuid import UUID

from app.domain.audit.seal import (
    FIRST_PREVIOUS,
    Seal,
    SealedSoFar,
    number_of_key,
    read_seal,
    seal_key,
)
from app.domain.audit.seal_check import (
    AuditDifference,
    DifferenceKind,
    StoredSeal,
    compare_next,
    compare_seal,
    database_older,
    merge_missing,
    rows_added,
)
from app.domain.units.errors import InvalidValue
from app.ports.clock import Clock
from app.ports.object_store import ObjectMissing, ObjectStore
from app.storage.audit.audit_reports import AuditReports, UnsealedTail

SEALS_PER_PART: Final = 200
DIFFERENCES_PER_PART: Final = 20
PART_LASTS: Final = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class VerifiedPart:
    """What a part found. seals, rows: how many were compared.

    differences: in the order of seals and rows; where there are many, the first of the part alone,
    and `is_cut`. differences_found: how many there are in the part. unsealed: of the last part;
    None of the others. next: the seal that the next part goes on after; None at the end.
    """

    seals: int
    rows: int
    differences: list[AuditDifference]
    differences_found: int
    is_cut: bool
    unsealed: UnsealedTail | None
    next: int | None


def verify_part(
    reports: AuditReports,
    store: ObjectStore,
    deployment_id: UUID,
    after: int,
    clock: Clock,
) -> VerifiedPart:
    """Compare seals above the number `after`, for some seconds. Raises ObjectStoreError."""
    until = clock.now() + PART_LASTS
    comparison = _Comparison(reports, store, deployment_id)
    found: list[AuditDifference] = []
    last, previous = after, _digest_of(reports, after)
    stored = reports.seals(after, SEALS_PER_PART)
    for seal in stored:
        found = merge_missing([*found, *comparison.of(seal, last, previous)])
        last, previous = seal.number, seal.digest
        if clock.now() > until or len(found) > DIFFERENCES_PER_PART:
            break
    ended = not stored or (last == stored[-1].number and len(stored) < SEALS_PER_PART)
    unsealed = None
    if ended:
        beyond = list(comparison.of_the_end(last))
        if reports.seals(last, 1):
            ended = False  # it was sealed meanwhile: the next part compares that
        else:
            found += beyond
            unsealed = reports.unsealed()
    return VerifiedPart(
        comparison.seals,
        comparison.rows,
        found[:DIFFERENCES_PER_PART],
        len(found),
        len(found) > DIFFERENCES_PER_PART,
        unsealed,
        None if ended else last,
    )


class _Comparison:
    """Reads both sides, and counts what it has compared."""

    def __init__(self, reports: AuditReports, store: ObjectStore, deployment_id: UUID) -> None:
        self._reports = reports
        self._store = store
        self._deployment_id = deployment_id
        self.seals = 0
        self.rows = 0

    def of(self, stored: StoredSeal, last: int, previous: str) -> Iterator[AuditDifference]:
        """One seal. last: the number of the one before in the table; previous: its digest."""
        if stored.number != last + 1:
            yield AuditDifference(
                DifferenceKind.SEAL_MISSING,
                f"Seals {last + 1} to {stored.number - 1} are missing in the database.",
                last + 1,
            )
        rows = self._reports.numbered(stored.first_row, stored.last_row)
        self.seals += 1
        self.rows += len(rows)
        try:
            outside = self._outside(stored.number)
        except InvalidValue as error:
            text = f"Seal {stored.number} outside the database cannot be used: {error.message}."
            yield AuditDifference(DifferenceKind.SEAL_UNREADABLE, text, stored.number)
            return
        yield from compare_seal(stored, outside, rows, previous, self._deployment_id)

    def of_the_end(self, last: int) -> Iterator[AuditDifference]:
        """What is beyond the last seal, here and outside."""
        stored = self._reports.seal(last)
        so_far = SealedSoFar()
        if stored is not None:
            so_far = SealedSoFar(last, stored.digest, stored.last_row, stored.sealed_at)
        yield from self._beyond_outside(so_far)
        yield from rows_added(self._reports.numbers_beyond(so_far.last_row, DIFFERENCES_PER_PART))

    def _beyond_outside(self, so_far: SealedSoFar) -> Iterator[AuditDifference]:
        """What disagrees of the seals outside that the database does not know: most have none."""
        number = so_far.number + 1
        try:
            outside = self._outside(number)
            if outside is None:
                return
        except InvalidValue as error:
            text = (
                f"Seal {number} is outside the database, which does not know it, and cannot be "
                f"used: {error.message}. Nothing is sealed until {self._key(number)} is moved away."
            )
            yield AuditDifference(DifferenceKind.SEAL_UNREADABLE, text, number)
            outside = None
        last_outside = self._last_outside()
        if last_outside > number:
            yield database_older(so_far.number, last_outside)
        elif outside is not None:
            unsealed = self._reports.count_unsealed([row.id for row in outside.rows])
            yield from compare_next(so_far, outside, unsealed, self._deployment_id)

    def _key(self, number: int) -> str:
        return seal_key(self._deployment_id, number)

    def _outside(self, number: int) -> Seal | None:
        try:
            return read_seal(self._store.get(self._key(number)))
        except ObjectMissing:
            return None

    def _last_outside(self) -> int:
        keys = self._store.list_keys(f"{self._deployment_id}/")
        return max((number_of_key(key) or 0 for key in keys), default=0)


def _digest_of(reports: AuditReports, number: int) -> str:
    """What the next seal is to name. Raises InvalidValue for a seal that is not there."""
    if number == 0:
        return FIRST_PREVIOUS
    stored = reports.seal(number)
    if stored is None:
        raise InvalidValue(f"after: there is no seal {number} in the database", "after")
    return stored.digest
