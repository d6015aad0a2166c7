"""Tables of the audit: rows of actions, seals over them, and counts of what was refused.

Rows and seals are append-only: triggers refuse update, delete and truncate (migrations 0012, 0017),
but for the number of a row, which is filled in once.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Index,
    Table,
    Text,
    Uuid,
    text,
)

from app.domain.audit.audit_action import AuditAction, AuditOutcome, SubjectKind
from app.storage.schema.column_types import Word
from app.storage.schema.schema import instant, metadata

_SEALED = text("number IS NOT NULL")

audit_entries = Table(
    "audit_entries",
    metadata,
    Column("id", Uuid, primary_key=True),
    instant("at", nullable=False),
    # No foreign keys: a row outlives whatever it is about.
    Column("project_id", Uuid),
    Column("key_id", Uuid),
    Column("person_id", Uuid),
    Column("address", Text),
    Column("request_id", Text),
    Column("action", Word(AuditAction), nullable=False),
    Column("subject_kind", Word(SubjectKind), nullable=False),
    Column("subject_id", Text, nullable=False),
    Column("subject_name", Text, nullable=False),
    Column("digest_before", Text),
    Column("digest_after", Text),
    Column("outcome", Word(AuditOutcome), nullable=False),
    # Given by a seal; NULL until then.
    Column("number", BigInteger),
    CheckConstraint("number > 0", name="number"),
    # A request writes the row into one of them and the primary key. The seal, which writes all of
    # a row's again as it gives it its number, writes the rest: who lists rows asks for both kinds.
    Index("ix_audit_entries_waiting", "at", "id", postgresql_where=text("number IS NULL")),
    Index("ix_audit_entries_number", "number", unique=True, postgresql_where=_SEALED),
    Index("ix_audit_entries_sealed_at", "at", "id", postgresql_where=_SEALED),
    Index("ix_audit_entries_sealed_key", "key_id", "at", "id", postgresql_where=_SEALED),
    Index("ix_audit_entries_sealed_person", "person_id", "at", "id", postgresql_where=_SEALED),
    Index("ix_audit_entries_sealed_project", "project_id", "at", "id", postgresql_where=_SEALED),
)

audit_seals = Table(
    "audit_seals",
    metadata,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    instant("sealed_at", nullable=False),
    Column("previous", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("first_row", BigInteger, nullable=False),
    Column("last_row", BigInteger, nullable=False),
)

# One row counts all attempts of a minute, so that who tries for long does not fill the disk.
audit_refusals = Table(
    "audit_refusals",
    metadata,
    Column("minute_at", instant("minute_at").type, primary_key=True),
    Column("address", Text, primary_key=True),
    Column("key_prefix", Text, primary_key=True),
    Column("action", Text, primary_key=True),
    Column("attempts", BigInteger, nullable=False),
)
