"""Tables of projects, people, their keys, and the sessions of browsers.

Not here: what people are sent or shown once, to sign in with (`sign_in_tables`).
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    Table,
    Text,
    Uuid,
    text,
)
from sqlalchemy import UniqueConstraint as Unique
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

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
    # Of a person's key: the project it works in where none is named.
    Column("project_id", Uuid, ForeignKey("projects.id"), nullable=False),
    Column("person_id", Uuid, ForeignKey("people.id")),
    # Of a person's key: one that no path of the release before this one can hold, as to that
    # release it is a key of the project; people see `own_name`.
    Column("name", Text, nullable=False),
    Column("own_name", Text),
    Column("key_hash", Text, nullable=False, unique=True),
    # What the release before this one reads of the role.
    Column("is_admin", Boolean, nullable=False),
    # Of a person's key: a viewer's, which is all that the release before this one lets it do.
    Column("role", Word(Role), nullable=False),
    # Of a person's key alone: at most this, however much more the person may do.
    Column("limit_role", Word(Role)),
    # Of a person's key: it opens no other projects of the person. Of a service key: it works in all
    # of these. NULL: those that the person has, and the key's own. To the release before this one,
    # every key is one of its own project.
    Column("project_ids", ARRAY(Uuid)),
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
    Unique("person_id", "own_name"),
    CheckConstraint(one_of("role", Role), name="role_known"),
    CheckConstraint(one_of("limit_role", Role), name="limit_role_known"),
    CheckConstraint(
        "CASE WHEN person_id IS NULL THEN own_name IS NULL AND limit_role IS NULL "
        "ELSE own_name IS NOT NULL AND limit_role IS NOT NULL AND role = 'viewer' "
        "AND NOT is_admin END",
        name="a_person_s_key_is_a_viewer_s_to_others",
    ),
    CheckConstraint(
        "project_ids IS NULL OR (project_ids @> ARRAY[project_id] "
        "AND coalesce(limit_role, role) IN ('viewer', 'submitter', 'maintainer'))",
        name="projects_hold_its_own_and_no_role_of_all",
    ),
    CheckConstraint(
        "(former_hash IS NULL) = (former_until_at IS NULL)", name="former_key_has_an_end"
    ),
    Index("ix_api_keys_project_ids", "project_ids", postgresql_using="gin"),
)

people = Table(
    "people",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("name", Text, nullable=False),
    # Without case, width and joiners: histories name people, so no two may look alike by these.
    Column("name_folded", Text, nullable=False, unique=True),
    Column("email", Text),
    instant("created_at", nullable=False),
    # Opens nothing any more, whatever its memberships and keys are.
    instant("disabled_at"),
    Index("ix_people_email", text("lower(email)")),
)

memberships = Table(
    "memberships",
    metadata,
    Column("person_id", Uuid, ForeignKey("people.id"), primary_key=True),
    Column("project_id", Uuid, ForeignKey("projects.id"), primary_key=True),
    Column("role", Word(Role), nullable=False),
    instant("created_at", nullable=False),
    Column("created_by", Text),
    # Whose groups it follows with each sign-in there; NULL: made by hand, and left alone by groups.
    Column("issuer", Text),
    Index("ix_memberships_project_id", "project_id"),
    CheckConstraint(one_of("role", Role), name="role_known"),
)

# Of browsers; the cookie has what `id_hash` is the SHA-256 of.
sessions = Table(
    "sessions",
    metadata,
    Column("id_hash", Text, primary_key=True),
    # Whose it is: a key's that signed in, or a person's who signed in without one.
    Column("key_id", Uuid, ForeignKey("api_keys.id")),
    Column("person_id", Uuid, ForeignKey("people.id")),
    # What its pages show, where a person has chosen among its projects.
    Column("project_id", Uuid, ForeignKey("projects.id")),
    instant("created_at", nullable=False),
    instant("expires_at", nullable=False),
    # Within minutes; not known of sessions that are older than this column.
    instant("last_seen_at"),
    Column("browser", Text),
    Column("address", Text),
    instant("ended_at"),
    Index("ix_sessions_expires_at", "expires_at"),
    Index("ix_sessions_key_id", "key_id"),
    Index("ix_sessions_person_id", "person_id"),
    CheckConstraint("(key_id IS NULL) <> (person_id IS NULL)", name="session_has_one_owner"),
)

# One row, for whoever remembers what the tables above say: the transaction that changed one of them
# last, in any column but a key's last use. Triggers write it when that transaction commits.
access_changes = Table(
    "access_changes",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("transaction_id", BigInteger, nullable=False),
    CheckConstraint("id = 1", name="single_row"),
)
