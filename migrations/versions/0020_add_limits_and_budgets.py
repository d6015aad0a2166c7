"""Let people freeze launches, limit the deployment's machines, and set monthly budgets and prices.

The release before knows none of them: its workers request machines all the same, and what they book
is added to the month when it is set anew.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the tables, and what is paid in a pool in place of its list price."""
    op.create_table(
        "freezes",
        sa.Column("place", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("cloud", sa.Text()),
        sa.Column("project_id", sa.Uuid()),
        sa.Column("frozen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("frozen_by", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("place", name=op.f("pk_freezes")),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f("fk_freezes_project_id")
        ),
        sa.CheckConstraint(
            "scope IN ('cloud', 'everything', 'project')", name=op.f("ck_freezes_scope_known")
        ),
        sa.CheckConstraint(
            "(scope = 'cloud') = (cloud IS NOT NULL) "
            "AND (scope = 'project') = (project_id IS NOT NULL)",
            name=op.f("ck_freezes_place_is_of_its_scope"),
        ),
    )
    op.create_table(
        "deployment_limits",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("limits", JSONB(), nullable=False),
        sa.Column("changed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("changed_by", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_deployment_limits")),
        sa.CheckConstraint("id = 1", name=op.f("ck_deployment_limits_single_row")),
    )
    op.create_table(
        "monthly_budgets",
        sa.Column("payer_id", sa.Uuid(), nullable=False),
        sa.Column("cap_microusd", sa.BigInteger(), nullable=False),
        sa.Column("at_full", sa.Text(), nullable=False),
        sa.Column("month_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("spent_microusd", sa.BigInteger(), nullable=False),
        sa.Column("room_since_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("changed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("changed_by", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("payer_id", name=op.f("pk_monthly_budgets")),
        sa.CheckConstraint("cap_microusd > 0", name=op.f("ck_monthly_budgets_cap_positive")),
        sa.CheckConstraint(
            "at_full IN ('block_new', 'drain_and_pause')",
            name=op.f("ck_monthly_budgets_at_full_known"),
        ),
    )
    op.create_table(
        "budget_thresholds",
        sa.Column("payer_id", sa.Uuid(), nullable=False),
        sa.Column("month_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("percent", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("told_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("spent_microusd", sa.BigInteger(), nullable=False),
        sa.Column("cap_microusd", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint(
            "payer_id", "month_at", "percent", name=op.f("pk_budget_thresholds")
        ),
    )
    op.add_column("pools", sa.Column("list_microusd_per_hour", sa.BigInteger()))
    op.add_column("pools", sa.Column("price_terms", sa.Text()))


def downgrade() -> None:
    """Remove them, and with them every freeze, limit and monthly budget."""
    op.drop_column("pools", "price_terms")
    op.drop_column("pools", "list_microusd_per_hour")
    op.drop_table("budget_thresholds")
    op.drop_table("monthly_budgets")
    op.drop_table("deployment_limits")
    op.drop_table("freezes")
