"""Tables of what people sign in with: invitations, accounts at issuers, confirmed logins, and
counted attempts.

Secrets are stored as their SHA-256 alone. Not here: who they become (`access_tables`).
"""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Column, ForeignKey, Index, Integer, Table, Text, Uuid

from app.domain.access.roles import Role
from app.storage.schema.column_types import Word
from app.storage.schema.schema import instant, metadata, one_of

invitations = Table(
    "invitations",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("token_hash", Text, nullable=False, unique=True),
    Column("project_id", Uuid, ForeignKey("projects.id"), nullable=False),
    # The person who gets another key by it, whose keys are lost.
    Column("person_id", Uuid, ForeignKey("people.id")),
    Column("role", Word(Role), nullable=False),
    Column("email", Text),
    # Who invites must still be allowed to when it is accepted. Of the first admin's: nobody.
    Column("invited_by_key_id", Uuid, ForeignKey("api_keys.id")),
    Column("invited_by_person_id", Uuid, ForeignKey("people.id")),
    Column("created_by", Text, nullable=False),
    instant("created_at", nullable=False),
    instant("expires_at", nullable=False),
    instant("used_at"),
    Column("used_by_person_id", Uuid, ForeignKey("people.id")),
    instant("revoked_at"),
    Index("ix_invitations_project_id", "project_id"),
    Index("ix_invitations_expires_at", "expires_at"),
    CheckConstraint(one_of("role", Role), name="role_known"),
)

# Accounts of people at issuers of OpenID Connect.
identities = Table(
    "identities",
    metadata,
    Column("issuer", Text, primary_key=True),
    # The issuer's own id of the account, which it never gives to another.
    Column("subject", Text, primary_key=True),
    Column("person_id", Uuid, ForeignKey("people.id"), nullable=False),
    instant("created_at", nullable=False),
    instant("signed_in_at", nullable=False),
    Index("ix_identities_person_id", "person_id"),
)

# Sign-ins at issuers whose answer has come: a second one is a copy.
answered_sign_ins = Table(
    "answered_sign_ins",
    metadata,
    Column("state_hash", Text, primary_key=True),
    instant("expires_at", nullable=False),
    Index("ix_answered_sign_ins_expires_at", "expires_at"),
)

# What a signed-in person has confirmed for a `lowtide login` that waits for its code.
logins = Table(
    "logins",
    metadata,
    # SHA-256 of what the command alone has (PKCE).
    Column("challenge", Text, primary_key=True),
    Column("code_hash", Text, nullable=False),
    Column("person_id", Uuid, ForeignKey("people.id"), nullable=False),
    Column("project_id", Uuid, ForeignKey("projects.id"), nullable=False),
    # Of the browser that confirmed it: its end, which its key's end is, too, ends the login.
    Column("session_id_hash", Text, nullable=False),
    Column("limit_role", Word(Role), nullable=False),
    Column("machine", Text, nullable=False),
    Column("tries", Integer, nullable=False),
    instant("created_at", nullable=False),
    instant("expires_at", nullable=False),
    instant("key_expires_at", nullable=False),
    instant("used_at"),
    Index("ix_logins_expires_at", "expires_at"),
    CheckConstraint(one_of("limit_role", Role), name="role_known"),
)

# How often somebody has tried to sign in since a window began, by address or by account.
sign_in_attempts = Table(
    "sign_in_attempts",
    metadata,
    Column("subject", Text, primary_key=True),
    instant("began_at", nullable=False),
    Column("count", Integer, nullable=False),
    Index("ix_sign_in_attempts_began_at", "began_at"),
)
