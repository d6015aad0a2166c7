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
    _create_books_passes()
    _create_bucket_places()
    _create_pool_pasts()
    _create_pools()
    _create_prices()
    _create_assignments()
    _index_assignments()
    _create_books_differences()
    _create_cost_rollups()
    _index_cost_rollups()
    _create_ledger_entries()
    _index_ledger_entries()
    _create_transfers()


def downgrade() -> None:
    """Drop the tables."""
    op.drop_table("transfers")
    op.drop_table("ledger_entries")
    op.drop_table("cost_rollups")
    op.drop_table("books_differences")
    op.drop_table("assignments")
    op.drop_table("prices")
    op.drop_table("pools")
    op.drop_table("pool_pasts")
    op.drop_table("bucket_places")
    op.drop_table("books_passes")


def _create_books_passes() -> None:
    op.create_table(
        "books_passes",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("next_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("begun_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("after_id", sa.Uuid(), nullable=True),
        sa.Column("machines", sa.Integer(), nullable=False),
        sa.Column("checked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("checked_machines", sa.Integer(), nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("ck_books_passes_single_row")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_books_passes")),
    )


def _create_bucket_places() -> None:
    op.create_table(
        "bucket_places",
        sa.Column("bucket", sa.Text(), nullable=False),
        sa.Column("named", sa.Text(), nullable=False),
        sa.Column("region", sa.Text(), nullable=True),
        sa.Column("looked_up_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("note", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("bucket", name=op.f("pk_bucket_places")),
    )


def _create_pool_pasts() -> None:
    op.create_table(
        "pool_pasts",
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("asked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column(
            "steps", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=True
        ),
        sa.Column("source", sa.Text(), nullable=True),
        sa.Column(
            "preemptions", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=True
        ),
        sa.Column("score", sa.Integer(), nullable=True),
        sa.Column("scored_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("pool", name=op.f("pk_pool_pasts")),
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
        sa.Column(
            "attachments", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=True
        ),
        sa.Column("cool_until_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("cool_reason", sa.Text(), nullable=True),
        sa.Column("refusals", sa.Integer(), nullable=False),
        sa.Column("hazard_factor", sa.Float(), nullable=True),
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


def _create_books_differences() -> None:
    op.create_table(
        "books_differences",
        sa.Column("instance_id", sa.Uuid(), nullable=False),
        sa.Column("rollup_key", sa.Text(), nullable=False),
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=True),
        sa.Column("booked_microusd", sa.BigInteger(), nullable=False),
        sa.Column("rolled_up_microusd", sa.BigInteger(), nullable=False),
        sa.Column("found_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["instance_id"], ["instances.id"], name=op.f("fk_books_differences_instance_id")
        ),
        sa.PrimaryKeyConstraint("instance_id", "rollup_key", name=op.f("pk_books_differences")),
    )


def _create_cost_rollups() -> None:
    op.create_table(
        "cost_rollups",
        sa.Column("instance_id", sa.Uuid(), nullable=False),
        sa.Column("rollup_key", sa.Text(), nullable=False),
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=True),
        sa.Column("job_id", sa.Uuid(), nullable=True),
        sa.Column("component", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("amount_microusd", sa.BigInteger(), nullable=False),
        sa.Column("entries", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["instance_id"], ["instances.id"], name=op.f("fk_cost_rollups_instance_id")
        ),
        sa.PrimaryKeyConstraint("instance_id", "rollup_key", name=op.f("pk_cost_rollups")),
    )


def _index_cost_rollups() -> None:
    op.create_index("ix_cost_rollups_job_id", "cost_rollups", ["job_id"], unique=False)
    op.create_index(
        "ix_cost_rollups_project_day", "cost_rollups", ["project_id", "day"], unique=False
    )


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


def _create_transfers() -> None:
    op.create_table(
        "transfers",
        sa.Column("instance_id", sa.Uuid(), nullable=False),
        sa.Column("fence", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("microusd_per_gb", sa.BigInteger(), nullable=True),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("captured_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("estimated", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["instance_id"], ["instances.id"], name=op.f("fk_transfers_instance_id")
        ),
        sa.PrimaryKeyConstraint("instance_id", "fence", name=op.f("pk_transfers")),
    )
