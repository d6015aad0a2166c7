"""Create instance tables.

Written by `make migrate-regenerate` from the tables in code; do not edit.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables."""
    _create_instances()
    _index_instances()
    _create_attempt_members()
    _index_attempt_members()
    _create_contacts()
    _create_log_streams()
    _create_phases()
    _index_phases()


def downgrade() -> None:
    """Drop the tables."""
    op.drop_table("phases")
    op.drop_table("log_streams")
    op.drop_table("contacts")
    op.drop_table("attempt_members")
    op.drop_table("instances")


def _create_instances() -> None:
    op.create_table(
        "instances",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("job_id", sa.Uuid(), nullable=True),
        sa.Column("launch_id", sa.Uuid(), nullable=True),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("market", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("origin", sa.Text(), nullable=False),
        sa.Column("requested_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("pool", sa.Text(), nullable=True),
        sa.Column("cloud", sa.Text(), nullable=True),
        sa.Column("billing_speed", sa.Integer(), nullable=False),
        sa.Column("provider_instance_id", sa.Text(), nullable=True),
        sa.Column("host", sa.Text(), nullable=True),
        sa.Column("launched_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("launched_source", sa.Text(), nullable=True),
        sa.Column("register_until_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("registered_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("noticed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("notice_deadline_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("release_ordered_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("release_reason", sa.Text(), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_source", sa.Text(), nullable=True),
        sa.Column("ended_by", sa.Text(), nullable=True),
        sa.Column("on_demand_microusd_per_hour", sa.BigInteger(), nullable=True),
        sa.Column("attachments", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("credential_hash", sa.Text(), nullable=True),
        sa.Column("nonce_hash", sa.Text(), nullable=True),
        sa.Column("boot_id", sa.Text(), nullable=True),
        sa.Column("private_address", sa.Text(), nullable=True),
        sa.Column("port_from", sa.Integer(), nullable=True),
        sa.Column("port_to", sa.Integer(), nullable=True),
        sa.Column("observed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("describe_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("absent_since_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("unreachable_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("forced_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("warned_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("suspect", sa.Boolean(), nullable=False),
        sa.Column("terminate_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("terminate_calls", sa.Integer(), nullable=False),
        sa.Column("lease_token", sa.Text(), nullable=True),
        sa.Column("lease_until_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("billed_until_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("rating", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("cost_final_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "state IN ('interrupting', 'launch_failed', 'launched', 'launching', 'registered', 'requested', 'terminated', 'terminating')",
            name=op.f("ck_instances_state_known"),
        ),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_instances_job_id")),
        sa.ForeignKeyConstraint(
            ["launch_id"], ["launches.id"], name=op.f("fk_instances_launch_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_instances")),
        sa.UniqueConstraint("credential_hash", name=op.f("uq_instances_credential_hash")),
    )


def _index_instances() -> None:
    op.create_index(
        "ix_instances_cost_open",
        "instances",
        ["id"],
        unique=False,
        postgresql_where=sa.text("cost_final_at IS NULL"),
    )
    op.create_index(
        "ix_instances_describe",
        "instances",
        ["describe_at"],
        unique=False,
        postgresql_where=sa.text("describe_at IS NOT NULL"),
    )
    op.create_index("ix_instances_job_id", "instances", ["job_id"], unique=False)
    op.create_index("ix_instances_launch_id", "instances", ["launch_id"], unique=False)
    op.create_index(
        "ix_instances_launched_at",
        "instances",
        ["launched_at"],
        unique=False,
        postgresql_where=sa.text("launched_at IS NOT NULL"),
    )
    op.create_index(
        "ix_instances_live",
        "instances",
        ["id"],
        unique=False,
        postgresql_where=sa.text(
            "state IN ('interrupting', 'launched', 'launching', 'registered', 'requested', 'terminating')"
        ),
    )
    op.create_index(
        "ix_instances_provider_instance_id", "instances", ["provider_instance_id"], unique=False
    )
    op.create_index(
        "ix_instances_terminate",
        "instances",
        ["terminate_at"],
        unique=False,
        postgresql_where=sa.text("terminate_at IS NOT NULL"),
    )
    op.create_index(
        "uq_instances_provider_instance_id",
        "instances",
        ["provider", "provider_instance_id"],
        unique=True,
        postgresql_where=sa.text(
            "state IN ('interrupting', 'launched', 'launching', 'registered', 'requested', 'terminating')"
        ),
    )


def _create_attempt_members() -> None:
    op.create_table(
        "attempt_members",
        sa.Column("attempt_id", sa.Uuid(), nullable=False),
        sa.Column("instance_id", sa.Uuid(), nullable=False),
        sa.Column("node_rank", sa.Integer(), nullable=False),
        sa.Column("prepared_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("master_port", sa.Integer(), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("end", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["attempt_id"], ["attempts.id"], name=op.f("fk_attempt_members_attempt_id")
        ),
        sa.ForeignKeyConstraint(
            ["instance_id"], ["instances.id"], name=op.f("fk_attempt_members_instance_id")
        ),
        sa.PrimaryKeyConstraint("attempt_id", "instance_id", name=op.f("pk_attempt_members")),
        sa.UniqueConstraint(
            "attempt_id",
            "node_rank",
            deferrable=True,
            initially="DEFERRED",
            name=op.f("uq_attempt_members_attempt_id_node_rank"),
        ),
    )


def _index_attempt_members() -> None:
    op.create_index(
        "ix_attempt_members_instance_id", "attempt_members", ["instance_id"], unique=False
    )


def _create_contacts() -> None:
    op.create_table(
        "contacts",
        sa.Column("instance_id", sa.Uuid(), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("fact_no", sa.Integer(), nullable=False),
        sa.Column("answered_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("phase", sa.Text(), nullable=False),
        sa.Column("fence", sa.Integer(), nullable=True),
        sa.Column("step", sa.BigInteger(), nullable=True),
        sa.Column("total_steps", sa.BigInteger(), nullable=True),
        sa.Column("metrics", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("step_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("session_uptime_ms", sa.BigInteger(), nullable=True),
        sa.Column("session_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["instance_id"], ["instances.id"], name=op.f("fk_contacts_instance_id")
        ),
        sa.PrimaryKeyConstraint("instance_id", name=op.f("pk_contacts")),
        postgresql_with={"fillfactor": "50"},
    )


def _create_log_streams() -> None:
    op.create_table(
        "log_streams",
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("stream", sa.Text(), nullable=False),
        sa.Column("instance_id", sa.Uuid(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["instance_id"], ["instances.id"], name=op.f("fk_log_streams_instance_id")
        ),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_log_streams_job_id")),
        sa.PrimaryKeyConstraint("job_id", "stream", name=op.f("pk_log_streams")),
    )


def _create_phases() -> None:
    op.create_table(
        "phases",
        sa.Column("instance_id", sa.Uuid(), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("fact_no", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("phase", sa.Text(), nullable=False),
        sa.Column("from_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("fence", sa.Integer(), nullable=True),
        sa.Column("step", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["instance_id"], ["instances.id"], name=op.f("fk_phases_instance_id")
        ),
        sa.PrimaryKeyConstraint("instance_id", "session_id", "fact_no", name=op.f("pk_phases")),
    )


def _index_phases() -> None:
    op.create_index("ix_phases_job_id", "phases", ["job_id"], unique=False)
