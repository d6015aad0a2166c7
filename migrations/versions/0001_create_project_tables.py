"""Create project tables.

Written by `make migrate-regenerate` from the tables in code; do not edit.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables."""
    op.execute("CREATE EXTENSION IF NOT EXISTS btree_gist")
    _create_projects()
    _create_api_keys()
    _create_budgets()
    _index_budgets()


def downgrade() -> None:
    """Drop the tables."""
    op.drop_table("budgets")
    op.drop_table("api_keys")
    op.drop_table("projects")
    op.execute("DROP EXTENSION IF EXISTS btree_gist")


def _create_projects() -> None:
    op.create_table(
        "projects",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_projects")),
        sa.UniqueConstraint("name", name=op.f("uq_projects_name")),
    )


def _create_api_keys() -> None:
    op.create_table(
        "api_keys",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("key_hash", sa.Text(), nullable=False),
        sa.Column("is_admin", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f("fk_api_keys_project_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_keys")),
        sa.UniqueConstraint("key_hash", name=op.f("uq_api_keys_key_hash")),
        sa.UniqueConstraint("project_id", "name", name=op.f("uq_api_keys_project_id_name")),
    )


def _create_budgets() -> None:
    op.create_table(
        "budgets",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.Column("job_id", sa.Uuid(), nullable=True),
        sa.Column("cap_microusd", sa.BigInteger(), nullable=True),
        sa.Column("spent_microusd", sa.BigInteger(), nullable=False),
        sa.Column("reserved_microusd", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("reserved_microusd >= 0", name=op.f("ck_budgets_reserved_positive")),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f("fk_budgets_project_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_budgets")),
    )


def _index_budgets() -> None:
    op.create_index(
        "ix_budgets_reserved",
        "budgets",
        ["project_id"],
        unique=False,
        postgresql_where=sa.text("reserved_microusd > 0"),
    )
    op.create_index(
        "uq_budgets_project_own",
        "budgets",
        ["project_id"],
        unique=True,
        postgresql_where=sa.text("job_id IS NULL"),
    )
