"""Tables of what the deployment knows of itself."""

from __future__ import annotations

from sqlalchemy import (
    Boolean,
    CheckConstraint,
    Column,
    Integer,
    Table,
    Text,
    Uuid,
)
from sqlalchemy.dialects.postgresql import JSONB

from app.adapters.postgres.schema import instant, metadata

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

sweeps = Table(
    "sweeps",
    metadata,
    Column("provider", Text, primary_key=True),
    Column("region", Text, primary_key=True),
    instant("swept_at"),
    Column("complete", Boolean, nullable=False),
    Column("machines", Integer, nullable=False),
)

controller_runs = Table(
    "controller_runs",
    metadata,
    Column("controller", Text, primary_key=True),
    instant("ran_at", nullable=False),
    Column("worked", Integer, nullable=False),
    Column("error", Text),
)
