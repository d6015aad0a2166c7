"""Create operations tables.

Written by `make migrate-regenerate` from the tables in code; do not edit.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables."""
    _create_controller_runs()
    _create_deployment()
    _create_deployment_events()
    _index_deployment_events()
    _create_log_chunks()
    _create_stale_results()
    _create_sweeps()


def downgrade() -> None:
    """Drop the tables."""
    op.drop_table("sweeps")
    op.drop_table("stale_results")
    op.drop_table("log_chunks")
    op.drop_table("deployment_events")
    op.drop_table("deployment")
    op.drop_table("controller_runs")


def _create_controller_runs() -> None:
    op.create_table(
        "controller_runs",
        sa.Column("controller", sa.Text(), nullable=False),
        sa.Column("ran_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("worked", sa.Integer(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("controller", name=op.f("pk_controller_runs")),
    )


def _create_deployment() -> None:
    op.create_table(
        "deployment",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("deployment_id", sa.Uuid(), nullable=False),
        sa.Column("secret", sa.Text(), nullable=False),
        sa.Column("listening_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("hearing_since_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("adopt_since_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("adopt_reason", sa.Text(), nullable=True),
        sa.Column("sweep_asked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("destroy_ordered_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("id = 1", name=op.f("ck_deployment_single_row")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_deployment")),
    )


def _create_deployment_events() -> None:
    op.create_table(
        "deployment_events",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("data", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_deployment_events")),
    )


def _index_deployment_events() -> None:
    op.create_index("ix_deployment_events_at", "deployment_events", ["at"], unique=False)


def _create_log_chunks() -> None:
    op.create_table(
        "log_chunks",
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("stream", sa.Text(), nullable=False),
        sa.Column("byte_offset", sa.BigInteger(), nullable=False),
        sa.Column("size_bytes", sa.Integer(), nullable=False),
        sa.Column("object_key", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "stream", "byte_offset", name=op.f("pk_log_chunks")),
    )


def _create_stale_results() -> None:
    op.create_table(
        "stale_results",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("controller", sa.Text(), nullable=False),
        sa.Column("provider", sa.Text(), nullable=True),
        sa.Column("provider_instance_ids", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("handled_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_stale_results")),
    )


def _create_sweeps() -> None:
    op.create_table(
        "sweeps",
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("region", sa.Text(), nullable=False),
        sa.Column("swept_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("complete", sa.Boolean(), nullable=False),
        sa.Column("machines", sa.Integer(), nullable=False),
        sa.Column("remains", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("remains_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("provider", "region", name=op.f("pk_sweeps")),
    )
