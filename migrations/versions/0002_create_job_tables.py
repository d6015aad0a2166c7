"""Create job tables.

Written by `make migrate-regenerate` from the tables in code; do not edit.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables."""
    _create_jobs()
    _constrain_jobs()
    _index_jobs()
    _create_attempts()
    _index_attempts()
    _create_checkpoints()
    _index_checkpoints()
    _create_events()
    _create_job_estimates()
    _create_launches()
    _index_launches()
    _create_metric_points()
    _create_placement_decisions()


def downgrade() -> None:
    """Drop the tables."""
    op.drop_table("placement_decisions")
    op.drop_table("metric_points")
    op.drop_table("launches")
    op.drop_table("job_estimates")
    op.drop_table("events")
    op.drop_table("checkpoints")
    op.drop_table("attempts")
    op.drop_table("jobs")


def _create_jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.Column("budget_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("spec", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("spec_digest", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("node_count", sa.Integer(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("event_seq", sa.Integer(), nullable=False),
        sa.Column("next_fence", sa.Integer(), nullable=False),
        sa.Column("capacity_key", sa.Text(), nullable=False),
        sa.Column("market_mode", sa.Text(), nullable=False),
        sa.Column("submitted_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("queue_rank_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("claimable_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("wait_reason", sa.Text(), nullable=True),
        sa.Column("stop_cause", sa.Text(), nullable=True),
        sa.Column("stop_ordered_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("deadline_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("max_wait_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("max_duration_seconds", sa.Integer(), nullable=True),
        sa.Column("run_limit_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_safe_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("unsafe_since_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("deadline_missed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("paused_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("slack_look_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("moving_launch_id", sa.Uuid(), nullable=True),
        sa.Column("moving_until_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("move_look_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("hold_until_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("timer_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("prune_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("cost_final_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("on_demand_comparison_microusd", sa.BigInteger(), nullable=True),
        sa.Column("end_reason", sa.Text(), nullable=True),
        sa.Column("end_message", sa.Text(), nullable=True),
        sa.Column("committed_step", sa.BigInteger(), nullable=False),
        sa.Column("trained_steps", sa.BigInteger(), nullable=True),
        sa.Column("trained_seconds", sa.Float(precision=53), nullable=True),
        sa.Column("serial_share", sa.Float(precision=53), nullable=True),
        sa.Column("total_steps", sa.BigInteger(), nullable=True),
        sa.Column("retries_used", sa.Integer(), nullable=False),
        sa.Column("consecutive_failures", sa.Integer(), nullable=False),
        sa.Column("attempts_without_progress", sa.Integer(), nullable=False),
        sa.Column("idempotency_key", sa.Text(), nullable=True),
        sa.Column("idempotency_digest", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "(state IN ('cancelled', 'failed', 'succeeded')) = (ended_at IS NOT NULL)",
            name=op.f("ck_jobs_ended_iff_terminal"),
        ),
        sa.CheckConstraint(
            "state IN ('cancelled', 'failed', 'paused', 'queued', 'recovering', 'running', 'starting', 'stopping', 'succeeded')",
            name=op.f("ck_jobs_state_known"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
    )


def _constrain_jobs() -> None:
    op.create_foreign_key(op.f("fk_jobs_budget_id"), "jobs", "budgets", ["budget_id"], ["id"])
    op.create_foreign_key(op.f("fk_jobs_project_id"), "jobs", "projects", ["project_id"], ["id"])
    op.create_unique_constraint(
        op.f("uq_jobs_project_id_idempotency_key"), "jobs", ["project_id", "idempotency_key"]
    )
    op.create_unique_constraint(op.f("uq_jobs_project_id_name"), "jobs", ["project_id", "name"])


def _index_jobs() -> None:
    op.create_index(
        "ix_jobs_cost_open",
        "jobs",
        ["id"],
        unique=False,
        postgresql_where=sa.text("ended_at IS NOT NULL AND cost_final_at IS NULL"),
    )
    op.create_index("ix_jobs_listing", "jobs", ["project_id", "submitted_at", "id"], unique=False)
    op.create_index(
        "ix_jobs_live",
        "jobs",
        ["id"],
        unique=False,
        postgresql_where=sa.text("NOT (state IN ('cancelled', 'failed', 'succeeded'))"),
    )
    op.create_index(
        "ix_jobs_movable",
        "jobs",
        ["move_look_at"],
        unique=False,
        postgresql_where=sa.text(
            "(state = 'running' AND market_mode = 'spot') OR moving_launch_id IS NOT NULL"
        ),
    )
    op.create_index(
        "ix_jobs_promised",
        "jobs",
        ["slack_look_at"],
        unique=False,
        postgresql_where=sa.text(
            "deadline_at IS NOT NULL AND deadline_missed_at IS NULL AND state IN ('queued', 'recovering', 'running', 'starting')"
        ),
    )
    op.create_index(
        "ix_jobs_prune",
        "jobs",
        ["prune_at"],
        unique=False,
        postgresql_where=sa.text("prune_at IS NOT NULL"),
    )
    op.create_index(
        "ix_jobs_ready",
        "jobs",
        ["queue_rank_at", "id"],
        unique=False,
        postgresql_where=sa.text("state IN ('queued', 'recovering') AND claimable_at IS NULL"),
    )
    op.create_index(
        "ix_jobs_timer",
        "jobs",
        ["timer_at"],
        unique=False,
        postgresql_where=sa.text("timer_at IS NOT NULL"),
    )
    op.create_index(
        "ix_jobs_waiting",
        "jobs",
        ["claimable_at"],
        unique=False,
        postgresql_where=sa.text("state IN ('queued', 'recovering') AND claimable_at IS NOT NULL"),
    )


def _create_attempts() -> None:
    op.create_table(
        "attempts",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("node_count", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("form_until_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("launches_made", sa.Integer(), nullable=False),
        sa.Column("parent_fence", sa.Integer(), nullable=True),
        sa.Column("parent_step", sa.BigInteger(), nullable=True),
        sa.Column("parent_digest", sa.Text(), nullable=True),
        sa.Column("master_addr", sa.Text(), nullable=True),
        sa.Column("master_port", sa.Integer(), nullable=True),
        sa.Column("preparing_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("trained_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("drain_cause", sa.Text(), nullable=True),
        sa.Column("drain_until_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("settle_until_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("stalled_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("best_step", sa.BigInteger(), nullable=False),
        sa.Column("committed_step", sa.BigInteger(), nullable=False),
        sa.Column("committed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("hazard_per_hour", sa.Float(precision=53), nullable=True),
        sa.Column("price_microusd_per_hour", sa.BigInteger(), nullable=True),
        sa.Column("outlook_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("size_look_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("end_reason", sa.Text(), nullable=True),
        sa.Column("end_message", sa.Text(), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "state IN ('draining', 'failed', 'interrupted', 'lost', 'preparing', 'provisioning', 'running', 'settling', 'stopped', 'succeeded', 'yielded')",
            name=op.f("ck_attempts_state_known"),
        ),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_attempts_job_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_attempts")),
        sa.UniqueConstraint("job_id", "fence", name=op.f("uq_attempts_job_id_fence")),
    )


def _index_attempts() -> None:
    op.create_index(
        "ix_attempts_outlook",
        "attempts",
        ["outlook_at"],
        unique=False,
        postgresql_where=sa.text("state IN ('preparing', 'running')"),
    )
    op.create_index(
        "uq_attempts_live",
        "attempts",
        ["job_id"],
        unique=True,
        postgresql_where=sa.text(
            "state IN ('draining', 'preparing', 'provisioning', 'running', 'settling')"
        ),
    )


def _create_checkpoints() -> None:
    op.create_table(
        "checkpoints",
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("final", sa.Boolean(), nullable=False),
        sa.Column("parent_fence", sa.Integer(), nullable=True),
        sa.Column("parent_step", sa.BigInteger(), nullable=True),
        sa.Column("parent_digest", sa.Text(), nullable=True),
        sa.Column("committed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("instance_id", sa.Uuid(), nullable=False),
        sa.Column("metrics", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("pruned_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_checkpoints_job_id")),
        sa.PrimaryKeyConstraint("job_id", "fence", "step", name=op.f("pk_checkpoints")),
    )


def _index_checkpoints() -> None:
    op.create_index(
        "ix_checkpoints_final",
        "checkpoints",
        ["job_id"],
        unique=False,
        postgresql_where=sa.text("final"),
    )
    op.create_index(
        "ix_checkpoints_standing",
        "checkpoints",
        ["job_id"],
        unique=False,
        postgresql_where=sa.text("pruned_at IS NULL AND NOT final"),
    )


def _create_events() -> None:
    op.create_table(
        "events",
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("noun", sa.Text(), nullable=False),
        sa.Column("noun_id", sa.Uuid(), nullable=True),
        sa.Column("from_state", sa.Text(), nullable=True),
        sa.Column("to_state", sa.Text(), nullable=True),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("data", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_events_job_id")),
        sa.PrimaryKeyConstraint("job_id", "seq", name=op.f("pk_events")),
    )


def _create_job_estimates() -> None:
    op.create_table(
        "job_estimates",
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("made_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("cost_p50_microusd", sa.BigInteger(), nullable=True),
        sa.Column("cost_p90_microusd", sa.BigInteger(), nullable=True),
        sa.Column("finish_p50_seconds", sa.Float(), nullable=True),
        sa.Column("finish_p90_seconds", sa.Float(), nullable=True),
        sa.Column("deadline_chance", sa.Float(), nullable=True),
        sa.Column("budget_chance", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_job_estimates_job_id")),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_job_estimates")),
    )


def _create_launches() -> None:
    op.create_table(
        "launches",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("client_token", sa.Text(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("min_count", sa.Integer(), nullable=False),
        sa.Column("market", sa.Text(), nullable=False),
        sa.Column("bids", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("params_digest", sa.Text(), nullable=False),
        sa.Column("purpose", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("token_hash", sa.Text(), nullable=False),
        sa.Column("token_expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("next_call_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("submitted_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("called_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("operation_name", sa.Text(), nullable=True),
        sa.Column("calls_made", sa.Integer(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("settled_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("alarmed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("lease_token", sa.Text(), nullable=True),
        sa.Column("lease_until_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "outcome IN ('accepted', 'partial', 'pending', 'refused', 'unknown')",
            name=op.f("ck_launches_outcome_known"),
        ),
        sa.CheckConstraint(
            "count >= 1 AND min_count BETWEEN 1 AND count", name=op.f("ck_launches_counts")
        ),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_launches_job_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_launches")),
        sa.UniqueConstraint("client_token", name=op.f("uq_launches_client_token")),
        sa.UniqueConstraint("token_hash", name=op.f("uq_launches_token_hash")),
    )


def _index_launches() -> None:
    op.create_index(
        "ix_launches_due",
        "launches",
        ["next_call_at"],
        unique=False,
        postgresql_where=sa.text("next_call_at IS NOT NULL"),
    )
    op.create_index("ix_launches_job_id", "launches", ["job_id"], unique=False)


def _create_metric_points() -> None:
    op.create_table(
        "metric_points",
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("metrics", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_metric_points_job_id")),
        sa.PrimaryKeyConstraint("job_id", "fence", "step", name=op.f("pk_metric_points")),
    )


def _create_placement_decisions() -> None:
    op.create_table(
        "placement_decisions",
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("decision_no", sa.Integer(), nullable=False),
        sa.Column("decided_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_confirmed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("outline", sa.Text(), nullable=False),
        sa.Column("document", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_placement_decisions_job_id")
        ),
        sa.PrimaryKeyConstraint("job_id", "decision_no", name=op.f("pk_placement_decisions")),
    )
