"""The table of projects' secrets: what is encrypted, and never a value."""

from __future__ import annotations

from sqlalchemy import (
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)

from app.storage.schema.schema import instant, metadata

secrets = Table(
    "secrets",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("project_id", Uuid, ForeignKey("projects.id"), nullable=False),
    Column("name", Text, nullable=False),
    # Grows with each value, also over a removal: no two values are encrypted for the same place.
    Column("version", Integer, nullable=False),
    Column("for_maintainers", Boolean, nullable=False),
    instant("created_at", nullable=False),
    Column("created_by", Text, nullable=False),
    instant("changed_at", nullable=False),
    Column("changed_by", Text, nullable=False),
    # Of a secret that was removed: its row stays without a value.
    instant("removed_at"),
    # Which key-encrypting key, the data key under it, and the value under the data key.
    Column("key_id", Text),
    Column("wrapped_key", LargeBinary),
    Column("content", LargeBinary),
    UniqueConstraint("project_id", "name"),
    CheckConstraint("version > 0", name="version"),
    CheckConstraint(
        "num_nulls(removed_at) = 1 AND num_nulls(key_id, wrapped_key, content) = 0 "
        "OR num_nulls(removed_at) = 0 AND num_nulls(key_id, wrapped_key, content) = 3",
        name="has_a_value_until_removed",
    ),
    Index("ix_secrets_key_id", "key_id", postgresql_where=text("key_id IS NOT NULL")),
)
