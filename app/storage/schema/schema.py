"""What every table is made with: the metadata, and helpers for columns and conditions.

The database makes no time, id or sequence of its own, so that a simulator owns them all.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import (
    Column,
    DateTime,
    MetaData,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def instant(name: str, nullable: bool = True) -> Column[Any]:
    """A column for an aware UTC instant."""
    return Column(name, DateTime(timezone=True), nullable=nullable)


def one_of(column: str, values: Iterable[str]) -> str:
    """SQL condition that a column holds one of the words."""
    return f"{column} IN ({', '.join(repr(str(value)) for value in sorted(values))})"
