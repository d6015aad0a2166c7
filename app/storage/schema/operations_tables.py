"""Tables of what the deployment knows of itself."""

from __future__ import annotations

from sqlalchemy import (
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    Table,
    Text,
    Uuid,
)
from sqlalchemy.dialects.postgresql import JSONB

from app.domain.launch_limits.freeze import FreezeScope
from app.storage.schema.column_types import Word
from app.storage.schema.schema import instant, metadata, one_of

deployment = Table(
    "deployment",
    metadata,
    # Without autoincrement=False this key would bring a sequence.
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("deployment_id", Uuid, nullable=False),
    Column("secret", Text, nullable=False),
    # Silence of an agent counts only while we could hear: api processes write here.
    instant("listening_at"),
    instant("hearing_since_at"),
    # Set while machines are kept that these rows do not know: rows are missing, not machines.
    instant("adopt_since_at"),
    Column("adopt_reason", Text),
    instant("sweep_asked_at"),
    instant("destroy_ordered_at"),
    CheckConstraint("id = 1", name="single_row"),
)

stale_results = Table(
    "stale_results",
    metadata,
    Column("id", Uuid, primary_key=True),
    instant("at", nullable=False),
    Column("controller", Text, nullable=False),
    Column("provider", Text),
    Column("provider_instance_ids", JSONB, nullable=False),
    Column("detail", Text, nullable=False),
    instant("handled_at"),
)

deployment_events = Table(
    "deployment_events",
    metadata,
    Column("id", Uuid, primary_key=True),
    instant("at", nullable=False),
    Column("kind", Text, nullable=False),
    Column("message", Text, nullable=False),
    Column("data", JSONB, nullable=False),
    Index("ix_deployment_events_at", "at"),
)

sweeps = Table(
    "sweeps",
    metadata,
    Column("provider", Text, primary_key=True),
    Column("region", Text, primary_key=True),
    instant("swept_at"),
    Column("complete", Boolean, nullable=False),
    Column("machines", Integer, nullable=False),
    # What is there besides machines, as it was seen last: written whole, read whole.
    Column("remains", JSONB),
    instant("remains_at"),
)

controller_runs = Table(
    "controller_runs",
    metadata,
    Column("controller", Text, primary_key=True),
    instant("ran_at", nullable=False),
    Column("worked", Integer, nullable=False),
    Column("error", Text),
)

# No machine is requested there; the audit has those that were.
freezes = Table(
    "freezes",
    metadata,
    # `everything`, `cloud:aws`, `project:<id>`: one freeze each.
    Column("place", Text, primary_key=True),
    Column("scope", Word(FreezeScope), nullable=False),
    Column("cloud", Text),
    Column("project_id", Uuid, ForeignKey("projects.id")),
    instant("frozen_at", nullable=False),
    Column("frozen_by", Text, nullable=False),
    Column("reason", Text, nullable=False),
    CheckConstraint(one_of("scope", FreezeScope), name="scope_known"),
    CheckConstraint(
        "(scope = 'cloud') = (cloud IS NOT NULL) "
        "AND (scope = 'project') = (project_id IS NOT NULL)",
        name="place_is_of_its_scope",
    ),
)

# One row once limits were set: the most that the machines of all projects together may be.
deployment_limits = Table(
    "deployment_limits",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("limits", JSONB, nullable=False),
    instant("changed_at", nullable=False),
    Column("changed_by", Text, nullable=False),
    CheckConstraint("id = 1", name="single_row"),
)
