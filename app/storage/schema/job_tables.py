"""Tables of jobs, their budgets, attempts and what is told of their training."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from app.domain.lifecycle.attempt import (
    LIVE_ATTEMPT_STATES,
    TRAINING_ATTEMPT_STATES,
    AttemptState,
    DrainCause,
)
from app.domain.lifecycle.end_reason import EndReason
from app.domain.lifecycle.job import (
    ATTEMPT_JOB_STATES,
    CLAIMABLE_JOB_STATES,
    TERMINAL_JOB_STATES,
    BudgetKind,
    JobState,
    StopCause,
)
from app.domain.market.offer import Market
from app.storage.schema.column_types import Word
from app.storage.schema.schema import instant, metadata, one_of

budgets = Table(
    "budgets",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("project_id", Uuid, ForeignKey("projects.id"), nullable=False),
    Column("job_id", Uuid),
    Column("cap_microusd", BigInteger),
    Column("spent_microusd", BigInteger, nullable=False),
    Column("reserved_microusd", BigInteger, nullable=False),
    CheckConstraint("reserved_microusd >= 0", name="reserved_positive"),
    # Few at a time, however many jobs have ended: what the claims of a project have to add up.
    Index(
        "ix_budgets_reserved",
        "project_id",
        postgresql_where=text("reserved_microusd > 0"),
    ),
    Index(
        "uq_budgets_project_own", "project_id", unique=True, postgresql_where=text("job_id IS NULL")
    ),
)

PROMISED_JOB = (
    "deadline_at IS NOT NULL AND deadline_missed_at IS NULL AND "
    f"{one_of('state', (CLAIMABLE_JOB_STATES | ATTEMPT_JOB_STATES) - {JobState.STOPPING})}"
)
"""Condition of a live job whose deadline is still ahead."""

MOVABLE_JOB = (
    f"(state = '{JobState.RUNNING}' AND market_mode = '{Market.SPOT}') "
    "OR moving_launch_id IS NOT NULL"
)
"""Condition of a job that trains on spot machines, or is on its way to others."""

jobs = Table(
    "jobs",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("project_id", Uuid, ForeignKey("projects.id"), nullable=False),
    # The key that submitted it; not known of jobs that are older than this column.
    Column("owner_key_id", Uuid, ForeignKey("api_keys.id")),
    Column("owner_person_id", Uuid, ForeignKey("people.id")),
    Column("budget_id", Uuid, ForeignKey("budgets.id"), nullable=False),
    Column("name", Text, nullable=False),
    Column("spec", JSONB, nullable=False),
    Column("spec_digest", Text, nullable=False),
    Column("state", Word(JobState), nullable=False),
    Column("priority", Integer, nullable=False),
    Column("node_count", Integer, nullable=False),
    Column("version", Integer, nullable=False),
    Column("event_seq", Integer, nullable=False),
    Column("next_fence", Integer, nullable=False),
    Column("capacity_key", Text, nullable=False),
    Column("market_mode", Word(Market), nullable=False),
    instant("submitted_at", nullable=False),
    instant("updated_at", nullable=False),
    instant("queue_rank_at", nullable=False),
    instant("claimable_at"),
    Column("wait_reason", Text),
    Column("stop_cause", Word(StopCause)),
    instant("stop_ordered_at"),
    instant("deadline_at"),
    instant("max_wait_at"),
    Column("max_duration_seconds", Integer),
    instant("run_limit_at"),
    instant("last_safe_at"),
    instant("unsafe_since_at"),
    instant("deadline_missed_at"),
    instant("paused_at"),
    # Which budget has ordered the stop that goes on, or paused the job. NULL: none, or a worker of
    # the release before has ordered it, which knows the job's and the project's own alone.
    Column("paused_by_budget", Word(BudgetKind)),
    instant("slack_look_at"),
    Column("moving_launch_id", Uuid),
    instant("moving_until_at"),
    instant("move_look_at"),
    instant("hold_until_at"),
    # The earliest instant at which a rule of time applies to this job or anything it owns.
    instant("timer_at"),
    instant("prune_at"),
    instant("started_at"),
    instant("ended_at"),
    instant("cost_final_at"),
    # What the same work would have cost on demand, from the moment at which the cost is final.
    Column("on_demand_comparison_microusd", BigInteger),
    Column("end_reason", Word(EndReason)),
    Column("end_message", Text),
    Column("committed_step", BigInteger, nullable=False),
    Column("trained_steps", BigInteger),
    Column("trained_seconds", Float(53)),
    Column("begun_step", BigInteger),
    Column("saved_seconds", Float(53)),
    Column("start_up_seconds", Float(53)),
    Column("start_up_p95_seconds", Float(53)),
    instant("market_changed_at"),
    instant("slower_since_at"),
    # How it goes, as it was last worked out, for the list: `estimates.estimate_remaining`.
    Column("steps_per_second", Float(53)),
    instant("eta_at"),
    Column("eta_from", Text),
    Column("serial_share", Float(53)),
    Column("total_steps", BigInteger),
    Column("retries_used", Integer, nullable=False),
    Column("consecutive_failures", Integer, nullable=False),
    Column("attempts_without_progress", Integer, nullable=False),
    Column("idempotency_key", Text),
    Column("idempotency_digest", Text),
    # Which fields of the spec the project has given; NULL: none.
    Column("spec_sources", JSONB(none_as_null=True)),
    UniqueConstraint("project_id", "name"),
    UniqueConstraint("project_id", "idempotency_key"),
    CheckConstraint(one_of("state", JobState), name="state_known"),
    CheckConstraint(
        f"({one_of('state', TERMINAL_JOB_STATES)}) = (ended_at IS NOT NULL)",
        name="ended_iff_terminal",
    ),
    Index(
        "ix_jobs_ready",
        "queue_rank_at",
        "id",
        postgresql_where=text(f"{one_of('state', CLAIMABLE_JOB_STATES)} AND claimable_at IS NULL"),
    ),
    Index(
        "ix_jobs_waiting",
        "claimable_at",
        postgresql_where=text(
            f"{one_of('state', CLAIMABLE_JOB_STATES)} AND claimable_at IS NOT NULL"
        ),
    ),
    Index("ix_jobs_timer", "timer_at", postgresql_where=text("timer_at IS NOT NULL")),
    Index("ix_jobs_prune", "prune_at", postgresql_where=text("prune_at IS NOT NULL")),
    Index("ix_jobs_promised", "slack_look_at", postgresql_where=text(PROMISED_JOB)),
    Index("ix_jobs_movable", "move_look_at", postgresql_where=text(MOVABLE_JOB)),
    Index("ix_jobs_listing", "project_id", "submitted_at", "id"),
    Index(
        "ix_jobs_live",
        "id",
        postgresql_where=text(f"NOT ({one_of('state', TERMINAL_JOB_STATES)})"),
    ),
    Index(
        "ix_jobs_cost_open",
        "id",
        postgresql_where=text("ended_at IS NOT NULL AND cost_final_at IS NULL"),
    ),
)

events = Table(
    "events",
    metadata,
    Column("job_id", Uuid, ForeignKey("jobs.id"), primary_key=True),
    Column("seq", Integer, primary_key=True),
    instant("at", nullable=False),
    Column("actor", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("noun", Text, nullable=False),
    Column("noun_id", Uuid),
    Column("from_state", Text),
    Column("to_state", Text),
    Column("message", Text, nullable=False),
    Column("data", JSONB, nullable=False),
)

attempts = Table(
    "attempts",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("job_id", Uuid, ForeignKey("jobs.id"), nullable=False),
    Column("fence", Integer, nullable=False),
    Column("state", Word(AttemptState), nullable=False),
    Column("node_count", Integer, nullable=False),
    instant("created_at", nullable=False),
    instant("updated_at", nullable=False),
    instant("form_until_at", nullable=False),
    Column("launches_made", Integer, nullable=False),
    Column("parent_fence", Integer),
    Column("parent_step", BigInteger),
    Column("parent_digest", Text),
    Column("master_addr", Text),
    Column("master_port", Integer),
    instant("preparing_at"),
    instant("trained_at"),
    Column("drain_cause", Word(DrainCause)),
    instant("drain_until_at"),
    instant("settle_until_at"),
    instant("stalled_at"),
    Column("best_step", BigInteger, nullable=False),
    Column("committed_step", BigInteger, nullable=False),
    instant("committed_at"),
    Column("hazard_per_hour", Float(53)),
    Column("price_microusd_per_hour", BigInteger),
    instant("outlook_at"),
    instant("size_look_at"),
    Column("end_reason", Word(EndReason)),
    Column("end_message", Text),
    instant("ended_at"),
    Column("first_step", BigInteger),
    instant("first_step_at"),
    Column("last_step", BigInteger),
    Column("stepping_seconds", Float(53)),
    Column("start_up_seconds", Float(53)),
    # Of the project and of what makes one step as much as another; of attempts that were measured.
    Column("work_digest", Text),
    UniqueConstraint("job_id", "fence"),
    CheckConstraint(one_of("state", AttemptState), name="state_known"),
    Index(
        "uq_attempts_live",
        "job_id",
        unique=True,
        postgresql_where=text(one_of("state", LIVE_ATTEMPT_STATES)),
    ),
    Index(
        "ix_attempts_outlook",
        "outlook_at",
        postgresql_where=text(one_of("state", TRAINING_ATTEMPT_STATES)),
    ),
    Index(
        "ix_attempts_work",
        "work_digest",
        "trained_at",
        postgresql_where=text("work_digest IS NOT NULL"),
    ),
)

checkpoints = Table(
    "checkpoints",
    metadata,
    Column("job_id", Uuid, ForeignKey("jobs.id"), primary_key=True),
    Column("fence", Integer, primary_key=True),
    Column("step", BigInteger, primary_key=True),
    Column("digest", Text, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("final", Boolean, nullable=False),
    Column("parent_fence", Integer),
    Column("parent_step", BigInteger),
    Column("parent_digest", Text),
    instant("committed_at", nullable=False),
    Column("instance_id", Uuid, nullable=False),
    Column("metrics", JSONB, nullable=False),
    instant("pruned_at"),
    Index(
        "ix_checkpoints_standing",
        "job_id",
        postgresql_where=text("pruned_at IS NULL AND NOT final"),
    ),
    Index("ix_checkpoints_final", "job_id", postgresql_where=text("final")),
)

metric_points = Table(
    "metric_points",
    metadata,
    Column("job_id", Uuid, ForeignKey("jobs.id"), primary_key=True),
    Column("fence", Integer, primary_key=True),
    Column("step", BigInteger, primary_key=True),
    instant("at", nullable=False),
    Column("metrics", JSONB, nullable=False),
)

log_streams = Table(
    "log_streams",
    metadata,
    Column("job_id", Uuid, ForeignKey("jobs.id"), primary_key=True),
    Column("stream", Text, primary_key=True),
    Column("instance_id", Uuid, ForeignKey("instances.id"), nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    instant("updated_at", nullable=False),
)

log_chunks = Table(
    "log_chunks",
    metadata,
    Column("job_id", Uuid, primary_key=True),
    Column("stream", Text, primary_key=True),
    Column("byte_offset", BigInteger, primary_key=True),
    Column("size_bytes", Integer, nullable=False),
    Column("object_key", Text, nullable=False),
)

placement_decisions = Table(
    "placement_decisions",
    metadata,
    Column("job_id", Uuid, ForeignKey("jobs.id"), primary_key=True),
    Column("decision_no", Integer, primary_key=True),
    instant("decided_at", nullable=False),
    instant("last_confirmed_at", nullable=False),
    # Verdict, reason and chosen pools: a decision with the same one is no new decision.
    Column("outline", Text, nullable=False),
    Column("document", JSONB, nullable=False),
)

job_estimates = Table(
    "job_estimates",
    metadata,
    Column("job_id", Uuid, ForeignKey("jobs.id"), primary_key=True),
    instant("made_at", nullable=False),
    Column("cost_p50_microusd", BigInteger),
    Column("cost_p90_microusd", BigInteger),
    Column("finish_p50_seconds", Float),
    Column("finish_p90_seconds", Float),
    Column("deadline_chance", Float),
    Column("budget_chance", Float),
)
