"""Does a seal agree with the rows, with the seal before and with its copy outside the database?

Lives here: the comparison of one seal, of the next one outside and of both ends, and a sentence for
each difference. Not here: reading what is compared (`app.orchestration.audit.verify_audit`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from app.domain.audit.audit_entry import AuditEntry, digest_of_entry
from app.domain.audit.seal import Seal, SealedRow, SealedSoFar


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
    """seal, row: numbers; None where it is about none. last_row: of missing rows in one stretch.

    entry_id: of the row; None where it is not known, and of several.
    """

    kind: DifferenceKind
    sentence: str
    seal: int | None = None
    row: int | None = None
    entry_id: UUID | None = None
    last_row: int | None = None


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


def merge_missing(differences: Iterable[AuditDifference]) -> list[AuditDifference]:
    """The same, with missing rows that follow each other as one: a restore loses many at once."""
    merged: list[AuditDifference] = []
    for one in differences:
        before = merged[-1] if merged else None
        if before is not None and _follows(before, one):
            last = one.row if one.last_row is None else one.last_row
            text = f"Rows {before.row} to {last} are missing: seals have them, the table does not."
            merged[-1] = replace(before, sentence=text, entry_id=None, last_row=last)
        else:
            merged.append(one)
    return merged


def _follows(before: AuditDifference, one: AuditDifference) -> bool:
    last = before.row if before.last_row is None else before.last_row
    missing = before.kind is one.kind is DifferenceKind.ROW_MISSING
    return missing and last is not None and one.row == last + 1


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


def compare_next(
    so_far: SealedSoFar, outside: Seal, unsealed: int, deployment_id: UUID
) -> Iterator[AuditDifference]:
    """Where the seal after the database's last is outside, and none after it.

    It is about to be stored if its rows wait for it. unsealed: how many of them do.
    """
    follows = (deployment_id, so_far.number + 1, so_far.digest, so_far.last_row + 1)
    if (outside.deployment_id, outside.number, outside.previous, outside.first_row) != follows:
        yield AuditDifference(
            DifferenceKind.CHAIN_BROKEN,
            f"Seal {so_far.number + 1} outside the database does not follow seal {so_far.number} "
            "in it: one of them was changed, or is another deployment's. Nothing is sealed until "
            "that is mended.",
            so_far.number + 1,
        )
    elif unsealed < len(outside.rows):
        yield database_older(so_far.number, outside.number)


def database_older(last_seal: int, last_outside: int) -> AuditDifference:
    """Rows of the seals outside are not in the database."""
    return AuditDifference(
        DifferenceKind.DATABASE_OLDER,
        f"The database is older than the seals outside: its last is {last_seal}, outside is "
        f"{last_outside}. It was restored from a backup, or rows were removed from its end. "
        "What was done in between is in no table; the seals outside hold its digests.",
        last_outside,
    )


def rows_added(rows_beyond: Iterable[int]) -> Iterator[AuditDifference]:
    """rows_beyond: numbers above those of the last seal."""
    for row in rows_beyond:
        yield AuditDifference(
            DifferenceKind.ROW_ADDED, f"Row {row} has a number that no seal has given.", None, row
        )
