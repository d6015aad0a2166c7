"""Keep what people have done: a row for each action, seals over rows, and counts of refusals.

A row is written once; only the number that a seal gives it is filled in later, once. The program
numbers the rows, so that none can come in below a number that is sealed already.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

_REFUSE_CHANGE = """
CREATE FUNCTION refuse_audit_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only: % refused', TG_TABLE_NAME, TG_OP
        USING ERRCODE = 'restrict_violation';
END $$
"""
_REFUSE_UPDATE = """
CREATE FUNCTION refuse_audit_update() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    before audit_entries := NEW;
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NEW.number IS NOT NULL THEN
            RAISE EXCEPTION 'audit_entries is append-only: a number is given by a seal alone'
                USING ERRCODE = 'restrict_violation';
        END IF;
        RETURN NEW;
    END IF;
    before.number := NULL;
    IF NEW.number IS NULL OR before IS DISTINCT FROM OLD THEN
        RAISE EXCEPTION 'audit_entries is append-only: UPDATE refused'
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$
"""
# ALWAYS: also in a session that replays replicated changes, where ordinary triggers stay silent.
_TRIGGERS = """
CREATE TRIGGER audit_entries_append_only
    BEFORE DELETE OR TRUNCATE ON audit_entries
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_audit_change();
ALTER TABLE audit_entries ENABLE ALWAYS TRIGGER audit_entries_append_only;
CREATE TRIGGER audit_entries_numbered_once
    BEFORE INSERT OR UPDATE ON audit_entries
    FOR EACH ROW EXECUTE FUNCTION refuse_audit_update();
ALTER TABLE audit_entries ENABLE ALWAYS TRIGGER audit_entries_numbered_once;
CREATE TRIGGER audit_seals_append_only
    BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_seals
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_audit_change();
ALTER TABLE audit_seals ENABLE ALWAYS TRIGGER audit_seals_append_only;
REVOKE UPDATE, DELETE, TRUNCATE ON audit_entries, audit_seals FROM PUBLIC, CURRENT_USER;
GRANT UPDATE (number) ON audit_entries TO CURRENT_USER
"""


def upgrade() -> None:
    """Add the tables, and refuse to change what is in them."""
    _add_entries()
    op.create_table(
        "audit_seals",
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("sealed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("previous", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("first_row", sa.BigInteger(), nullable=False),
        sa.Column("last_row", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_audit_seals")),
    )
    op.create_table(
        "audit_refusals",
        sa.Column("minute_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("key_prefix", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("attempts", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint(
            "minute_at", "address", "key_prefix", "action", name=op.f("pk_audit_refusals")
        ),
    )
    op.execute(_REFUSE_CHANGE)
    op.execute(_REFUSE_UPDATE)
    op.execute(_TRIGGERS)


def _add_entries() -> None:
    op.create_table(
        "audit_entries",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("project_id", sa.Uuid()),
        sa.Column("key_id", sa.Uuid()),
        sa.Column("person_id", sa.Uuid()),
        sa.Column("address", sa.Text()),
        sa.Column("request_id", sa.Text()),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("subject_kind", sa.Text(), nullable=False),
        sa.Column("subject_id", sa.Text(), nullable=False),
        sa.Column("subject_name", sa.Text(), nullable=False),
        sa.Column("digest_before", sa.Text()),
        sa.Column("digest_after", sa.Text()),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("number", sa.BigInteger()),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit_entries")),
        sa.UniqueConstraint("number", name=op.f("uq_audit_entries_number")),
        sa.CheckConstraint("number > 0", name=op.f("ck_audit_entries_number")),
    )
    op.create_index("ix_audit_entries_at", "audit_entries", ["at", "id"])
    op.create_index("ix_audit_entries_key", "audit_entries", ["key_id", "at", "id"])
    op.create_index("ix_audit_entries_project", "audit_entries", ["project_id", "at", "id"])
    op.create_index(
        "ix_audit_entries_unsealed",
        "audit_entries",
        ["id"],
        postgresql_where=sa.text("number IS NULL"),
    )


def downgrade() -> None:
    """Remove all of it: what people did is not known any more."""
    for table in ("audit_refusals", "audit_seals", "audit_entries"):
        op.drop_table(table)
    op.execute("DROP FUNCTION refuse_audit_update()")
    op.execute("DROP FUNCTION refuse_audit_change()")
