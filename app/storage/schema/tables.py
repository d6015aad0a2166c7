"""All tables of jobs, instances and operations under one name; tables of money stand apart.

Not here: columns (`access_tables`, `secret_tables`, `sign_in_tables`, `job_tables`,
`instance_tables`, `notification_tables`, `operations_tables`), or statements (repositories,
`hot_statements`).
"""

from __future__ import annotations

from app.storage.schema.access_tables import (
    access_changes,
    api_keys,
    memberships,
    people,
    projects,
    sessions,
)
from app.storage.schema.audit_tables import audit_entries, audit_refusals, audit_seals
from app.storage.schema.instance_tables import (
    attempt_members,
    contacts,
    instances,
    launches,
    phases,
)
from app.storage.schema.job_tables import (
    MOVABLE_JOB,
    PROMISED_JOB,
    attempts,
    budgets,
    checkpoints,
    events,
    job_estimates,
    jobs,
    log_chunks,
    log_streams,
    metric_points,
    placement_decisions,
)
from app.storage.schema.notification_tables import (
    notification_channels,
    notification_deliveries,
    notification_rules,
)
from app.storage.schema.operations_tables import (
    controller_runs,
    deployment,
    deployment_events,
    deployment_limits,
    freezes,
    stale_results,
    sweeps,
)
from app.storage.schema.schema import instant, metadata, one_of
from app.storage.schema.secret_tables import secrets
from app.storage.schema.sign_in_tables import (
    answered_sign_ins,
    identities,
    invitations,
    logins,
    sign_in_attempts,
)

__all__ = [
    "MOVABLE_JOB",
    "PROMISED_JOB",
    "access_changes",
    "answered_sign_ins",
    "api_keys",
    "attempt_members",
    "attempts",
    "audit_entries",
    "audit_refusals",
    "audit_seals",
    "budgets",
    "checkpoints",
    "contacts",
    "controller_runs",
    "deployment",
    "deployment_events",
    "deployment_limits",
    "events",
    "freezes",
    "identities",
    "instances",
    "instant",
    "invitations",
    "job_estimates",
    "jobs",
    "launches",
    "log_chunks",
    "log_streams",
    "logins",
    "memberships",
    "metadata",
    "metric_points",
    "notification_channels",
    "notification_deliveries",
    "notification_rules",
    "one_of",
    "people",
    "phases",
    "placement_decisions",
    "projects",
    "secrets",
    "sessions",
    "sign_in_attempts",
    "stale_results",
    "sweeps",
]
