"""Say which transaction changed last what keys may do, so that it can be remembered until then.

The triggers are deferred: the one row is locked while a transaction commits and waits for nothing
else, so that it makes no deadlock.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

_TELL = """
CREATE FUNCTION tell_access_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO access_changes (id, transaction_id)
        VALUES (1, pg_current_xact_id()::text::bigint)
        ON CONFLICT (id) DO UPDATE SET transaction_id = excluded.transaction_id
        WHERE access_changes.transaction_id <> excluded.transaction_id;
    RETURN NULL;
END $$
"""
# A key that is added, and a project, is not remembered by anybody.
_TRIGGERS = """
CREATE CONSTRAINT TRIGGER projects_tell_access_change
    AFTER UPDATE OR DELETE ON projects DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION tell_access_change();
CREATE CONSTRAINT TRIGGER people_tell_access_change
    AFTER UPDATE OR DELETE ON people DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION tell_access_change();
CREATE CONSTRAINT TRIGGER memberships_tell_access_change
    AFTER INSERT OR UPDATE OR DELETE ON memberships DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION tell_access_change();
CREATE CONSTRAINT TRIGGER api_keys_tell_end
    AFTER DELETE ON api_keys DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION tell_access_change();
CREATE CONSTRAINT TRIGGER api_keys_tell_access_change
    AFTER UPDATE ON api_keys DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (
        to_jsonb(OLD) - 'last_used_at' IS DISTINCT FROM to_jsonb(NEW) - 'last_used_at'
    )
    EXECUTE FUNCTION tell_access_change()
"""


def upgrade() -> None:
    """Add the row and what writes it."""
    op.create_table(
        "access_changes",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("transaction_id", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_access_changes")),
        sa.CheckConstraint("id = 1", name=op.f("ck_access_changes_single_row")),
    )
    op.execute(_TELL)
    op.execute(_TRIGGERS)
    op.execute("INSERT INTO access_changes VALUES (1, pg_current_xact_id()::text::bigint)")


def downgrade() -> None:
    """Remove them."""
    op.execute("DROP FUNCTION tell_access_change() CASCADE")
    op.drop_table("access_changes")
