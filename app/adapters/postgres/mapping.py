"""Binds the domain's records to their tables, so that a session loads and stores them.

The records know nothing of it. Importing this module does the binding, once.
"""

from __future__ import annotations

from sqlalchemy import Table
from sqlalchemy.orm import registry

from app.adapters.postgres import money_tables, tables
from app.domain import entities

_registry = registry(metadata=tables.metadata)

_BINDINGS: tuple[tuple[type[object], Table], ...] = (
    (entities.Job, tables.jobs),
    (entities.Attempt, tables.attempts),
    (entities.AttemptMember, tables.attempt_members),
    (entities.Launch, tables.launches),
    (entities.Instance, tables.instances),
    (entities.Assignment, money_tables.assignments),
    (entities.Checkpoint, tables.checkpoints),
    (entities.Budget, tables.budgets),
    (entities.Contact, tables.contacts),
)

for _record, _table in _BINDINGS:
    _registry.map_imperatively(_record, _table)
