"""Binds the domain's records to their tables for SQLAlchemy's sessions, which reports read with.

Each binding is a class of its own below the record's, so that the records stay plain: what the
rules read and write goes through `record_kinds`. Importing this module does the binding, once.
"""

from __future__ import annotations

from sqlalchemy import Table
from sqlalchemy.orm import registry

from app.domain.lifecycle import entities
from app.storage.schema import money_tables, tables

_registry = registry(metadata=tables.metadata)


class ReadJob(entities.Job):
    """A job in a report."""


class ReadAttempt(entities.Attempt):
    """An attempt in a report."""


class ReadInstance(entities.Instance):
    """An instance in a report."""


class ReadAssignment(entities.Assignment):
    """An assignment in a report."""


class ReadBudget(entities.Budget):
    """A budget in a report."""


class ReadContact(entities.Contact):
    """A contact in a report."""


_BINDINGS: tuple[tuple[type[object], Table], ...] = (
    (ReadJob, tables.jobs),
    (ReadAttempt, tables.attempts),
    (ReadInstance, tables.instances),
    (ReadAssignment, money_tables.assignments),
    (ReadBudget, tables.budgets),
    (ReadContact, tables.contacts),
)

for _record, _table in _BINDINGS:
    _registry.map_imperatively(_record, _table)
