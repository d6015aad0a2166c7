"""Keep secrets of projects, encrypted.

The release before does not look at them. Downgrading removes them for good.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "secrets",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("for_maintainers", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("changed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("changed_by", sa.Text(), nullable=False),
        sa.Column("removed_at", sa.DateTime(timezone=True)),
        sa.Column("key_id", sa.Text()),
        sa.Column("wrapped_key", sa.LargeBinary()),
        sa.Column("content", sa.LargeBinary()),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_secrets")),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f("fk_secrets_project_id")
        ),
        sa.UniqueConstraint("project_id", "name", name=op.f("uq_secrets_project_id_name")),
        sa.CheckConstraint("version > 0", name=op.f("ck_secrets_version")),
        sa.CheckConstraint(
            "num_nulls(removed_at) = 1 AND num_nulls(key_id, wrapped_key, content) = 0 "
            "OR num_nulls(removed_at) = 0 AND num_nulls(key_id, wrapped_key, content) = 3",
            name=op.f("ck_secrets_has_a_value_until_removed"),
        ),
    )
    op.create_index(
        "ix_secrets_key_id", "secrets", ["key_id"], postgresql_where=sa.text("key_id IS NOT NULL")
    )


def downgrade() -> None:
    """Remove it."""
    op.drop_table("secrets")
