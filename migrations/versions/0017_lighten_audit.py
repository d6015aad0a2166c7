"""Make a row of the audit cheaper for the request that writes it.

The indexes that lists use hold numbered rows only: the seal writes all indexes of a row again as it
gives it its number, so a request need not. The trigger looks at an insert only if that brings a
number, which it refuses as before.

Programs of the release before go on writing: indexes are built beside them, which a transaction
cannot do. Then the old ones go, in a moment. That release lists the audit on this schema by reading
all of it.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

_SEALED = "number IS NOT NULL"
_NOW: tuple[tuple[str, list[str], str], ...] = (
    ("waiting", ["at", "id"], "number IS NULL"),
    ("number", ["number"], _SEALED),
    ("sealed_at", ["at", "id"], _SEALED),
    ("sealed_key", ["key_id", "at", "id"], _SEALED),
    ("sealed_person", ["person_id", "at", "id"], _SEALED),
    ("sealed_project", ["project_id", "at", "id"], _SEALED),
)
"""Name, columns, rows."""
_UNIQUE = "number"
_BEFORE = (
    ("at", ["at", "id"]),
    ("key", ["key_id", "at", "id"]),
    ("person", ["person_id", "at", "id"]),
    ("project", ["project_id", "at", "id"]),
)
_UNFINISHED = """
SELECT relname FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
WHERE indrelid = 'audit_entries'::regclass AND NOT indisvalid
"""
# ALWAYS: also in a session that replays replicated changes.
_SPLIT_TRIGGER = """
DROP TRIGGER audit_entries_numbered_once ON audit_entries;
CREATE TRIGGER audit_entries_numbered_once
    BEFORE UPDATE ON audit_entries
    FOR EACH ROW EXECUTE FUNCTION refuse_audit_update();
ALTER TABLE audit_entries ENABLE ALWAYS TRIGGER audit_entries_numbered_once;
CREATE TRIGGER audit_entries_inserted_without_number
    BEFORE INSERT ON audit_entries
    FOR EACH ROW WHEN (NEW.number IS NOT NULL) EXECUTE FUNCTION refuse_audit_update();
ALTER TABLE audit_entries ENABLE ALWAYS TRIGGER audit_entries_inserted_without_number
"""
_JOIN_TRIGGERS = """
DROP TRIGGER audit_entries_inserted_without_number ON audit_entries;
DROP TRIGGER audit_entries_numbered_once ON audit_entries;
CREATE TRIGGER audit_entries_numbered_once
    BEFORE INSERT OR UPDATE ON audit_entries
    FOR EACH ROW EXECUTE FUNCTION refuse_audit_update();
ALTER TABLE audit_entries ENABLE ALWAYS TRIGGER audit_entries_numbered_once
"""


def upgrade() -> None:
    """Put the indexes of numbered rows in place of those of all rows, and split the trigger."""
    with op.get_context().autocommit_block():
        _build_indexes()
    for name, _ in _BEFORE:
        _drop(name)
    _drop("unsealed")
    op.drop_constraint(op.f("uq_audit_entries_number"), "audit_entries")
    op.execute(_SPLIT_TRIGGER)


def downgrade() -> None:
    """Put those of all rows back."""
    op.execute(_JOIN_TRIGGERS)
    for name, _, _ in _NOW:
        _drop(name)
    op.create_unique_constraint(op.f("uq_audit_entries_number"), "audit_entries", ["number"])
    for name, columns in _BEFORE:
        op.create_index(f"ix_audit_entries_{name}", "audit_entries", columns)
    op.create_index(
        "ix_audit_entries_unsealed",
        "audit_entries",
        ["id"],
        postgresql_where=sa.text("number IS NULL"),
    )


def _build_indexes() -> None:
    """Build what is not built yet: an upgrade that was interrupted here goes on."""
    # Nothing reads an index whose building was interrupted, and every writer writes it.
    for unfinished in op.get_bind().execute(sa.text(_UNFINISHED)).scalars().all():
        op.drop_index(unfinished, "audit_entries", postgresql_concurrently=True)
    for name, columns, rows in _NOW:
        op.create_index(
            f"ix_audit_entries_{name}",
            "audit_entries",
            columns,
            unique=name == _UNIQUE,
            postgresql_where=sa.text(rows),
            postgresql_concurrently=True,
            if_not_exists=True,
        )


def _drop(name: str) -> None:
    op.drop_index(f"ix_audit_entries_{name}", "audit_entries")
