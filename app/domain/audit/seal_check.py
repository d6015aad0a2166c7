"""Does a seal agree with the rows, with the seal before and with its copy outside the database?

Lives here: the comparison of one seal and of both ends, and a sentence for each difference. Not
here: reading what is compared (`app.orchestration.audit.verify_audit`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from app.domain.audit.audit_entry import AuditEntry, digest_of_entry
from app.domain.audit.seal import Seal, SealedRow


class DifferenceKind(StrEnum):
    """What disagrees. Scripts read it; never reuse or rename one."""

    ROW_CHANGED = "row_changed"
    ROW_MISSING = "row_missing"
    ROW_ADDED = "row_added"
    SEAL_CHANGED = "seal_changed"
    """The database and the copy outside have two seals of one number."""
    SEAL_MISSING = "seal_missing"
    """The database has no seal of a number below its last."""
    SEAL_NOT_OUTSIDE = "seal_not_outside"
    SEAL_UNREADABLE = "seal_unreadable"
    CHAIN_BROKEN = "chain_broken"
    """A seal does not name the digest of the one before."""
    DATABASE_OLDER = "database_older"
    """Outside there are seals that the database does not know: it was restored."""


@dataclass(frozen=True, slots=True)
class AuditDifference:
    """seal, row: numbers; None where it is about none."""

    kind: DifferenceKind
    sentence: str
    seal: int | None = None
    row: int | None = None
    entry_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class StoredSeal:
    """A seal as the database has it, without its rows."""

    number: int
    sealed_at: datetime
    previous: str
    digest: str
    first_row: int
    last_row: int


def compare_seal(
    stored: StoredSeal,
    outside: Seal | None,
    rows: Mapping[int, AuditEntry],
    previous: str,
    deployment_id: UUID,
) -> Iterator[AuditDifference]:
    """What disagrees, rows in the order of their numbers.

    outside: None where there is no copy; the rows are then compared with the digest alone, which
    does not tell them apart. rows: those that the database has, by number. previous: the digest of
    the seal before.
    """
    number = stored.number
    if stored.previous != previous or (outside is not None and outside.previous != previous):
        yield AuditDifference(
            DifferenceKind.CHAIN_BROKEN,
            f"Seal {number} does not follow seal {number - 1}: one of them was changed.",
            number,
        )
    if outside is None:
        yield AuditDifference(
            DifferenceKind.SEAL_NOT_OUTSIDE,
            f"Seal {number} is in the database and not outside it: its copy was removed.",
            number,
        )
        yield from _compare_digest(stored, rows, deployment_id)
        return
    if _told_by(outside) != _told_by(stored):
        yield AuditDifference(
            DifferenceKind.SEAL_CHANGED,
            f"Seal {number} is another one in the database than outside it: one was changed.",
            number,
        )
    for row, sealed in enumerate(outside.rows, outside.first_row):
        if (found := _compare_row(number, row, sealed, rows.get(row))) is not None:
            yield found


def _told_by(seal: Seal | StoredSeal) -> tuple[str, int, int, datetime]:
    return seal.digest, seal.first_row, seal.last_row, seal.sealed_at


def _compare_digest(
    stored: StoredSeal, rows: Mapping[int, AuditEntry], deployment_id: UUID
) -> Iterator[AuditDifference]:
    numbers = range(stored.first_row, stored.last_row + 1)
    missing = [row for row in numbers if row not in rows]
    for row in missing:
        text = f"Row {row} is missing: seal {stored.number} has it, and the table does not."
        yield AuditDifference(DifferenceKind.ROW_MISSING, text, stored.number, row)
    if missing:
        return
    sealed = tuple(SealedRow(rows[row].id, digest_of_entry(rows[row])) for row in numbers)
    again = Seal(
        deployment_id,
        stored.number,
        stored.sealed_at,
        stored.previous,
        stored.first_row,
        sealed,
    )
    if again.digest != stored.digest:
        yield AuditDifference(
            DifferenceKind.ROW_CHANGED,
            f"A row of {stored.first_row} to {stored.last_row} was changed after seal "
            f"{stored.number}; without its copy outside the row is not known.",
            stored.number,
        )


def _compare_row(
    seal: int, row: int, sealed: SealedRow, entry: AuditEntry | None
) -> AuditDifference | None:
    if entry is None:
        text = f"Row {row} ({sealed.id}) is missing: seal {seal} has it, and the table does not."
        return AuditDifference(DifferenceKind.ROW_MISSING, text, seal, row, sealed.id)
    if entry.id != sealed.id or digest_of_entry(entry) != sealed.digest:
        text = f"Row {row} ({sealed.id}) was changed after seal {seal}."
        return AuditDifference(DifferenceKind.ROW_CHANGED, text, seal, row, sealed.id)
    return None


def compare_ends(
    last_seal: int, last_outside: int, rows_beyond: list[int]
) -> Iterator[AuditDifference]:
    """What disagrees beyond the last seal. rows_beyond: numbers that no seal has given."""
    if last_outside > last_seal:
        yield AuditDifference(
            DifferenceKind.DATABASE_OLDER,
            f"The database is older than the seals outside: its last is {last_seal}, outside is "
            f"{last_outside}. It was restored from a backup, or rows were removed from its end. "
            "What was done in between is in no table; the seals outside hold its digests.",
            last_outside,
        )
    for row in rows_beyond:
        yield AuditDifference(
            DifferenceKind.ROW_ADDED, f"Row {row} has a number that no seal has given.", None, row
        )
