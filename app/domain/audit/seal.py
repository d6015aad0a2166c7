"""Seals: each numbers some rows, and holds their digests and the digest of the seal before.

Whoever changes, removes or adds a row below the last seal has to change every later seal, too, here
and where seals are written outside the database. Not here: making one (`seal_audit`), or comparing
(`seal_check`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypedDict
from uuid import UUID

import orjson

from app.domain.audit.audit_entry import AuditEntry, digest_of_entry
from app.domain.units.errors import InvalidValue

FIRST_PREVIOUS: Final = "0" * 64
"""What the first seal names as the digest of the one before."""
_VERSION: Final = 1


class _SealDocument(TypedDict):
    """A seal as it is written. sealed_at: ISO 8601. rows: [id, digest] of each."""

    version: int
    deployment: str
    seal: int
    sealed_at: str
    previous: str
    first_row: int
    rows: list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class SealedRow:
    """A row as a seal has it. digest: `digest_of_entry`."""

    id: UUID
    digest: str


@dataclass(frozen=True, slots=True)
class Seal:
    """number: from 1, without gaps. first_row: the number of its first row, from 1, without gaps.

    previous: the digest of the seal before. rows: at least one, in the order of their numbers.
    """

    deployment_id: UUID
    number: int
    sealed_at: datetime
    previous: str
    first_row: int
    rows: tuple[SealedRow, ...]

    @property
    def last_row(self) -> int:
        """The number of its last row."""
        return self.first_row + len(self.rows) - 1

    @property
    def content(self) -> bytes:
        """What is written outside the database: canonical JSON, a line."""
        document = {
            "version": _VERSION,
            "deployment": self.deployment_id,
            "seal": self.number,
            "sealed_at": self.sealed_at,
            "previous": self.previous,
            "first_row": self.first_row,
            "rows": [[row.id, row.digest] for row in self.rows],
        }
        options = orjson.OPT_SORT_KEYS | orjson.OPT_UTC_Z | orjson.OPT_APPEND_NEWLINE
        return orjson.dumps(document, option=options)

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of the content."""
        return hashlib.sha256(self.content).hexdigest()


@dataclass(frozen=True, slots=True)
class SealedSoFar:
    """Where the chain ends: the last seal's number, digest and last row; zeros before the first."""

    number: int = 0
    digest: str = FIRST_PREVIOUS
    last_row: int = 0
    sealed_at: datetime | None = None


def next_seal(
    deployment_id: UUID, after: SealedSoFar, entries: Sequence[AuditEntry], at: datetime
) -> Seal:
    """The seal of these rows, at least one. at: never before the last seal's own."""
    return Seal(
        deployment_id,
        after.number + 1,
        at if after.sealed_at is None else max(at, after.sealed_at),
        after.digest,
        after.last_row + 1,
        tuple(SealedRow(entry.id, digest_of_entry(entry)) for entry in entries),
    )


def seal_key(deployment_id: UUID, number: int) -> str:
    """Where a seal is kept outside, below the root of the store: keys sort as numbers do."""
    return f"{deployment_id}/{number:012d}.json"


def number_of_key(key: str) -> int | None:
    """The number of the seal at a key; None for what is no key of a seal."""
    name = key.rpartition("/")[2]
    digits = name.removesuffix(".json")
    return int(digits) if name.endswith(".json") and digits.isascii() and digits.isdigit() else None


def read_seal(content: bytes) -> Seal:
    """The seal that `Seal.content` has written. Raises InvalidValue for anything else."""
    try:
        document: _SealDocument = orjson.loads(content)
        if document["version"] != _VERSION:
            raise InvalidValue("the seal was written by a later release of Lowtide; use that one")
        seal = Seal(
            UUID(document["deployment"]),
            int(document["seal"]),
            datetime.fromisoformat(document["sealed_at"]),
            str(document["previous"]),
            int(document["first_row"]),
            tuple(SealedRow(UUID(row_id), str(digest)) for row_id, digest in document["rows"]),
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InvalidValue(f"the seal cannot be read: {type(error).__name__}") from error
    if not seal.rows or seal.content != content:
        raise InvalidValue("the seal has another form than Lowtide writes")
    return seal
