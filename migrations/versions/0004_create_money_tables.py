"""Create money tables.

Written by `make migrate-regenerate` from the tables in code; do not edit.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables."""
    _create_cost_rollups()
    _index_cost_rollups()
    _create_pools()
    _create_prices()
    _create_assignments()
    _index_assignments()
    _create_ledger_entries()
    _index_ledger_entries()


def downgrade() -> None:
    """Drop the tables."""
    op.drop_table("ledger_entries")
    op.drop_table("assignments")
    op.drop_table("prices")
    op.drop_table("pools")
    op.drop_table("cost_rollups")


def _create_cost_rollups() -> None:
    op.create_table(
        "cost_rollups",
        sa.Column("rollup_key", sa.Text(), nullable=False),
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=True),
        sa.Column("job_id", sa.Uuid(), nullable=True),
        sa.Column("component", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("amount_microusd", sa.BigInteger(), nullable=False),
        sa.Column("entries", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("rollup_key", name=op.f("pk_cost_rollups")),
    )


def _index_cost_rollups() -> None:
    op.create_index("ix_cost_rollups_job_id", "cost_rollups", ["job_id"], unique=False)
    op.create_index(
        "ix_cost_rollups_project_day", "cost_rollups", ["project_id", "day"], unique=False
    )


def _create_pools() -> None:
    op.create_table(
        "pools",
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("cloud", sa.Text(), nullable=False),
        sa.Column("hardware", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("price_microusd_per_hour", sa.BigInteger(), nullable=False),
        sa.Column("on_demand_microusd_per_hour", sa.BigInteger(), nullable=False),
        sa.Column("quoted_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("price_source", sa.Text(), nullable=False),
        sa.Column("available", sa.Integer(), nullable=True),
        sa.Column("billing_speed", sa.Integer(), nullable=False),
        sa.Column("cool_until_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("cool_reason", sa.Text(), nullable=True),
        sa.Column("refusals", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("pool", name=op.f("pk_pools")),
    )


def _create_prices() -> None:
    op.create_table(
        "prices",
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("microusd_per_hour", sa.BigInteger(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("captured_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("pool", "at", name=op.f("pk_prices")),
    )


def _create_assignments() -> None:
    op.create_table(
        "assignments",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("instance_id", sa.Uuid(), nullable=False),
        sa.Column("job_id", sa.Uuid(), nullable=True),
        sa.Column("attempt_id", sa.Uuid(), nullable=True),
        sa.Column("from_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("to_at", sa.DateTime(timezone=True), nullable=True),
        postgresql.ExcludeConstraint(
            (sa.column("instance_id"), "="),
            (sa.text("tstzrange(from_at, to_at)"), "&&"),
            using="gist",
            name="ex_assignments_disjoint",
        ),
        sa.CheckConstraint(
            "to_at IS NULL OR to_at >= from_at", name=op.f("ck_assignments_forward")
        ),
        sa.ForeignKeyConstraint(
            ["attempt_id"], ["attempts.id"], name=op.f("fk_assignments_attempt_id")
        ),
        sa.ForeignKeyConstraint(
            ["instance_id"], ["instances.id"], name=op.f("fk_assignments_instance_id")
        ),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_assignments_job_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_assignments")),
    )


def _index_assignments() -> None:
    op.create_index("ix_assignments_job_id", "assignments", ["job_id"], unique=False)


def _create_ledger_entries() -> None:
    op.create_table(
        "ledger_entries",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("instance_id", sa.Uuid(), nullable=False),
        sa.Column("component", sa.Text(), nullable=False),
        sa.Column("assignment_id", sa.Uuid(), nullable=True),
        sa.Column("usage_hour_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("job_id", sa.Uuid(), nullable=True),
        sa.Column("project_id", sa.Uuid(), nullable=True),
        sa.Column("attempt_id", sa.Uuid(), nullable=True),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("amount_microusd", sa.BigInteger(), nullable=False),
        sa.Column("usage_from_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("usage_to_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("booked_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("price_source", sa.Text(), nullable=False),
        sa.Column("price_captured_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("rule_id", sa.Text(), nullable=False),
        sa.Column("estimated", sa.Boolean(), nullable=False),
        sa.CheckConstraint(
            "kind = 'accrual' OR reason IS NOT NULL",
            name=op.f("ck_ledger_entries_adjustment_has_reason"),
        ),
        sa.CheckConstraint(
            "kind IN ('accrual', 'adjustment')", name=op.f("ck_ledger_entries_kind_known")
        ),
        sa.ForeignKeyConstraint(
            ["instance_id"], ["instances.id"], name=op.f("fk_ledger_entries_instance_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_ledger_entries")),
    )


def _index_ledger_entries() -> None:
    op.create_index(
        "ix_ledger_entries_instance_id",
        "ledger_entries",
        ["instance_id", "component"],
        unique=False,
    )
    op.create_index(
        "ix_ledger_entries_job_id", "ledger_entries", ["job_id", "booked_at"], unique=False
    )
