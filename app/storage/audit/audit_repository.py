"""Audit rows written, sealed and counted, in PostgreSQL.

A row is sent with the last statements of its transaction: it costs no round trip of its own, and a
row that cannot be written undoes what it tells of. Not here: what pages and programs read
(`audit_reports`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from sqlalchemy import Integer, bindparam, delete, func, insert, select, text, tuple_
from sqlalchemy.dialects.postgresql import insert as insert_new

from app.domain.audit.audit_entry import ENTRY_FIELDS, AuditEntry
from app.domain.audit.seal import Seal, SealedSoFar
from app.storage.audit.audit_statements import INSERT_ENTRY, entry_parameters
from app.storage.schema.access_tables import api_keys
from app.storage.schema.audit_tables import audit_entries, audit_refusals, audit_seals
from app.storage.session.ready_statement import Ready
from app.storage.session.record_session import RecordSession
from app.storage.session.statement_runner import Statement

REFUSALS_KEPT: Final = timedelta(days=90)
REFUSALS_REMOVED_MAX: Final = 1_000
"""Of one call, so that none takes long."""
_ENTRIES: Final = audit_entries.c
_SEALS: Final = audit_seals.c
_UNSEALED = (
    select(*(_ENTRIES[name] for name in ENTRY_FIELDS))
    .where(_ENTRIES.number.is_(None))
    .order_by(_ENTRIES.at, _ENTRIES.id)
    .limit(bindparam("at_most", type_=Integer))
)
# The order names the index: who expects many such rows would look for one among all.
_HAS_UNSEALED = Ready(
    select(_ENTRIES.id).where(_ENTRIES.number.is_(None)).order_by(_ENTRIES.at, _ENTRIES.id).limit(1)
)
_LAST_SEAL = Ready(
    select(_SEALS.number, _SEALS.digest, _SEALS.last_row, _SEALS.sealed_at)
    .order_by(_SEALS.number.desc())
    .limit(1)
)
# Rows that are not there, as after a restore, leave their number unused.
_NUMBER = text("""
UPDATE audit_entries AS entry SET number = given.number
FROM (
    SELECT id, :first_row + place - 1 AS number
    FROM unnest(CAST(:ids AS uuid[])) WITH ORDINALITY AS listed (id, place)
) AS given
WHERE entry.id = given.id AND entry.number IS NULL
""")


@dataclass(frozen=True, slots=True)
class RefusedAttempts:
    """So many refused attempts of one minute. key_prefix: "" where none was sent.

    key_id: of a known key whose prefix is to be looked up; None where `key_prefix` says it.
    """

    minute_at: datetime
    address: str
    key_prefix: str
    key_id: UUID | None
    action: str
    attempts: int


class AuditRepository:
    """Rows of actions, and the chain of seals."""

    def __init__(self, session: RecordSession) -> None:
        self._session = session
        self._waiting: list[AuditEntry] = []
        session.append_inserts_with_flush(self._statements)

    def add(self, entry: AuditEntry) -> None:
        """Write the row in this transaction."""
        self._waiting.append(entry)

    def sealed_so_far(self) -> SealedSoFar:
        """Where the chain ends."""
        row = self._session.row(_LAST_SEAL)
        return SealedSoFar() if row is None else SealedSoFar(*row)

    def lock_seals(self) -> None:
        """Wait for everybody else who would add a seal, until this commits."""
        self._session.execute(text("LOCK TABLE audit_seals IN SHARE ROW EXCLUSIVE MODE"))

    def unsealed(self, limit: int) -> list[AuditEntry]:
        """Rows without a number, the oldest first."""
        rows = self._session.execute(_UNSEALED, {"at_most": limit})
        return [AuditEntry(*row) for row in rows]

    def has_unsealed(self) -> bool:
        """Whether a row has no number yet."""
        return self._session.row(_HAS_UNSEALED) is not None

    def add_seal(self, seal: Seal) -> None:
        """Store a seal that is written outside already, and give its rows their numbers."""
        self._session.execute(
            insert(audit_seals).values(
                number=seal.number,
                sealed_at=seal.sealed_at,
                previous=seal.previous,
                digest=seal.digest,
                first_row=seal.first_row,
                last_row=seal.last_row,
            )
        )
        ids = [row.id for row in seal.rows]
        self._session.execute(_NUMBER, {"ids": ids, "first_row": seal.first_row})

    def count_refusals(self, attempts: Sequence[RefusedAttempts], now: datetime) -> None:
        """Add to the counts of their minutes, and remove some that are too old.

        A process writes about a hundred counts a minute at most, so this removes more than come.
        """
        self._remove_old_refusals(now)
        counts: Counter[tuple[datetime, str, str, str]] = Counter()
        for one in attempts:
            prefix = one.key_prefix if one.key_id is None else self._prefix_of(one.key_id)
            counts[one.minute_at, one.address, prefix, one.action] += one.attempts
        # In one order everywhere, so that two processes do not wait for each other.
        for (minute_at, address, prefix, action), number in sorted(counts.items()):
            statement = insert_new(audit_refusals).values(
                minute_at=minute_at,
                address=address,
                key_prefix=prefix,
                action=action,
                attempts=number,
            )
            self._session.execute(
                statement.on_conflict_do_update(
                    index_elements=["minute_at", "address", "key_prefix", "action"],
                    set_={"attempts": audit_refusals.c.attempts + statement.excluded.attempts},
                )
            )

    def _remove_old_refusals(self, now: datetime) -> None:
        name = tuple_(*audit_refusals.primary_key)
        old = (
            select(*audit_refusals.primary_key)
            .where(audit_refusals.c.minute_at < now - REFUSALS_KEPT)
            .order_by(*audit_refusals.primary_key)
            .limit(REFUSALS_REMOVED_MAX)
            .with_for_update(skip_locked=True)
        )
        self._session.execute(delete(audit_refusals).where(name.in_(old)))

    def _prefix_of(self, key_id: UUID) -> str:
        keys = api_keys.c
        asked = select(func.coalesce(keys.prefix, "")).where(keys.id == key_id)
        return self._session.execute(asked).scalar_one_or_none() or ""

    def _statements(self) -> Iterator[Statement]:
        waiting, self._waiting = self._waiting, []
        for entry in waiting:
            yield INSERT_ENTRY, entry_parameters(entry)
