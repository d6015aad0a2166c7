"""Tables of money: pools and their prices, assignments, transfers, the ledger and its rollup.

The ledger is append-only: triggers refuse update, delete and truncate (migration 0001). Not here:
the rules that make entries (`app.domain.billing.billing`, `app.domain.billing.ledger`).
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Date,
    Float,
    ForeignKey,
    Index,
    Integer,
    Table,
    Text,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB, ExcludeConstraint

from app.domain.launch_limits.monthly_budget import AtFull
from app.storage.schema.column_types import PoolKey, Word
from app.storage.schema.tables import instant, metadata, one_of

pools = Table(
    "pools",
    metadata,
    Column("pool", PoolKey, primary_key=True),
    Column("provider", Text, nullable=False),
    Column("cloud", Text, nullable=False),
    Column("hardware", JSONB, nullable=False),
    Column("price_microusd_per_hour", BigInteger, nullable=False),
    Column("on_demand_microusd_per_hour", BigInteger, nullable=False),
    instant("quoted_at", nullable=False),
    Column("price_source", Text, nullable=False),
    Column("available", Integer),
    Column("billing_speed", Integer, nullable=False),
    Column("attachments", JSONB(none_as_null=True)),
    instant("cool_until_at"),
    Column("cool_reason", Text),
    Column("refusals", Integer, nullable=False),
    # By how much more often than usual its machines are taken, as learned; NULL: nothing is known.
    Column("hazard_factor", Float),
    # What its cloud lists, where a contract sets another price, and why; else NULL.
    Column("list_microusd_per_hour", BigInteger),
    Column("price_terms", Text),
)

prices = Table(
    "prices",
    metadata,
    Column("pool", PoolKey, primary_key=True),
    Column("at", instant("at").type, primary_key=True),
    Column("microusd_per_hour", BigInteger, nullable=False),
    Column("source", Text, nullable=False),
    instant("captured_at", nullable=False),
)

pool_pasts = Table(
    "pool_pasts",
    metadata,
    Column("pool", PoolKey, primary_key=True),
    instant("asked_at"),
    # [[seconds since 1970, micro-USD per hour], …], thinned: written whole, read whole.
    Column("steps", JSONB(none_as_null=True)),
    Column("source", Text),
    Column("preemptions", JSONB(none_as_null=True)),
    Column("score", Integer),
    instant("scored_at"),
)

assignments = Table(
    "assignments",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("instance_id", Uuid, ForeignKey("instances.id"), nullable=False),
    Column("job_id", Uuid, ForeignKey("jobs.id")),
    Column("attempt_id", Uuid, ForeignKey("attempts.id")),
    instant("from_at", nullable=False),
    instant("to_at"),
    CheckConstraint("to_at IS NULL OR to_at >= from_at", name="forward"),
    ExcludeConstraint(
        ("instance_id", "="),
        (text("tstzrange(from_at, to_at)"), "&&"),
        name="ex_assignments_disjoint",
        using="gist",
    ),
    Index("ix_assignments_job_id", "job_id"),
)

bucket_places = Table(
    "bucket_places",
    metadata,
    Column("bucket", Text, primary_key=True),
    Column("named", Text, nullable=False),
    Column("region", Text),
    instant("looked_up_at"),
    Column("note", Text, nullable=False),
)

transfers = Table(
    "transfers",
    metadata,
    Column("instance_id", Uuid, ForeignKey("instances.id"), primary_key=True),
    Column("fence", Integer, primary_key=True, autoincrement=False),
    instant("at", nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    # NULL: no price can be said, so that it is on no bill.
    Column("microusd_per_gb", BigInteger),
    Column("source", Text, nullable=False),
    instant("captured_at", nullable=False),
    Column("estimated", Boolean, nullable=False),
)

ledger_entries = Table(
    "ledger_entries",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("instance_id", Uuid, ForeignKey("instances.id"), nullable=False),
    Column("component", Text, nullable=False),
    Column("assignment_id", Uuid),
    instant("usage_hour_at", nullable=False),
    Column("job_id", Uuid),
    Column("project_id", Uuid),
    Column("attempt_id", Uuid),
    Column("kind", Text, nullable=False),
    Column("reason", Text),
    Column("amount_microusd", BigInteger, nullable=False),
    instant("usage_from_at", nullable=False),
    instant("usage_to_at", nullable=False),
    instant("booked_at", nullable=False),
    Column("price_source", Text, nullable=False),
    instant("price_captured_at"),
    Column("rule_id", Text, nullable=False),
    Column("estimated", Boolean, nullable=False),
    CheckConstraint("kind IN ('accrual', 'adjustment')", name="kind_known"),
    CheckConstraint("kind = 'accrual' OR reason IS NOT NULL", name="adjustment_has_reason"),
    Index("ix_ledger_entries_instance_id", "instance_id", "component"),
    Index("ix_ledger_entries_job_id", "job_id", "booked_at"),
)

cost_rollups = Table(
    "cost_rollups",
    metadata,
    # By the machine first, so that its rows are found beside its entries.
    Column("instance_id", Uuid, ForeignKey("instances.id"), primary_key=True),
    Column("rollup_key", Text, primary_key=True),
    Column("day", Date, nullable=False),
    Column("project_id", Uuid),
    Column("job_id", Uuid),
    Column("component", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("amount_microusd", BigInteger, nullable=False),
    Column("entries", Integer, nullable=False),
    Index("ix_cost_rollups_project_day", "project_id", "day"),
    Index("ix_cost_rollups_job_id", "job_id"),
)

# Of projects that have one, and (`DEPLOYMENT_PAYER`) of the deployment. Who changes the row of a
# project holds the row of its own budget.
monthly_budgets = Table(
    "monthly_budgets",
    metadata,
    Column("payer_id", Uuid, primary_key=True),
    Column("cap_microusd", BigInteger, nullable=False),
    Column("at_full", Word(AtFull), nullable=False),
    # The month that `spent_microusd` is of: what was booked for its usage, whenever it was booked.
    instant("month_at", nullable=False),
    Column("spent_microusd", BigInteger, nullable=False),
    # Jobs that this budget paused before then go back into the queue.
    instant("room_since_at", nullable=False),
    instant("changed_at", nullable=False),
    Column("changed_by", Text, nullable=False),
    CheckConstraint("cap_microusd > 0", name="cap_positive"),
    CheckConstraint(one_of("at_full", AtFull), name="at_full_known"),
)

budget_thresholds = Table(
    "budget_thresholds",
    metadata,
    Column("payer_id", Uuid, primary_key=True),
    Column("month_at", instant("month_at").type, primary_key=True),
    Column("percent", Integer, primary_key=True, autoincrement=False),
    instant("told_at", nullable=False),
    Column("spent_microusd", BigInteger, nullable=False),
    Column("cap_microusd", BigInteger, nullable=False),
)

books_differences = Table(
    "books_differences",
    metadata,
    Column("instance_id", Uuid, ForeignKey("instances.id"), primary_key=True),
    Column("rollup_key", Text, primary_key=True),
    Column("day", Date, nullable=False),
    Column("project_id", Uuid),
    Column("booked_microusd", BigInteger, nullable=False),
    Column("rolled_up_microusd", BigInteger, nullable=False),
    instant("found_at", nullable=False),
)

books_passes = Table(
    "books_passes",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    instant("next_at", nullable=False),
    instant("begun_at"),
    Column("after_id", Uuid),
    Column("machines", Integer, nullable=False),
    instant("checked_at"),
    Column("checked_machines", Integer, nullable=False),
    CheckConstraint("id = 1", name="single_row"),
)
