"""Tables of projects, their keys, and the sessions of browsers."""

from __future__ import annotations

from sqlalchemy import (
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    Table,
    Text,
    Uuid,
)
from sqlalchemy import UniqueConstraint as Unique
from sqlalchemy.dialects.postgresql import JSONB

from app.domain.access.roles import Role
from app.storage.schema.column_types import Word
from app.storage.schema.schema import instant, metadata, one_of

projects = Table(
    "projects",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    instant("created_at", nullable=False),
    # Takes no new jobs; what it has goes on, and stays to be read.
    instant("archived_at"),
    # What its jobs may ask for, and its number, which grows with each change; NULL: none so far.
    Column("rules", JSONB(none_as_null=True)),
    Column("rules_version", Integer),
    instant("rules_changed_at"),
    Column("rules_changed_by", Text),
)

api_keys = Table(
    "api_keys",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("project_id", Uuid, ForeignKey("projects.id"), nullable=False),
    Column("name", Text, nullable=False),
    Column("key_hash", Text, nullable=False, unique=True),
    # What the release before this one reads of the role.
    Column("is_admin", Boolean, nullable=False),
    Column("role", Word(Role), nullable=False),
    # What a key begins with, for people; not known of keys that are older than this column.
    Column("prefix", Text),
    # After a rotation the former key is good for a while.
    Column("former_hash", Text, unique=True),
    instant("former_until_at"),
    instant("created_at", nullable=False),
    Column("created_by", Text),
    instant("expires_at"),
    instant("last_used_at"),
    instant("revoked_at"),
    Column("revoked_by", Text),
    Unique("project_id", "name"),
    CheckConstraint(one_of("role", Role), name="role_known"),
    CheckConstraint(
        "(former_hash IS NULL) = (former_until_at IS NULL)", name="former_key_has_an_end"
    ),
)

# Of browsers; the cookie has what `id_hash` is the SHA-256 of.
sessions = Table(
    "sessions",
    metadata,
    Column("id_hash", Text, primary_key=True),
    Column("key_id", Uuid, ForeignKey("api_keys.id"), nullable=False),
    instant("created_at", nullable=False),
    instant("expires_at", nullable=False),
    instant("ended_at"),
    Index("ix_sessions_expires_at", "expires_at"),
)
