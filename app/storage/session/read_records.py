"""Records in reports: read by any statement of SQLAlchemy, made as in `record_kinds`.

Nothing that is read here is written back.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, TypeVar

from sqlalchemy import Column, Connection, Select, select

from app.storage.session.record_kinds import KINDS

R = TypeVar("R")


def columns_of(record: type[Any]) -> tuple[Column[Any], ...]:
    """What a statement selects of a record's table, so that `take_record` can make it."""
    return tuple(KINDS[record].table.columns)


def select_records(record: type[Any]) -> Select[Any]:
    """Every record of a class; conditions and order are added to it."""
    return select(*columns_of(record))


def read_records(connection: Connection, record: type[R], statement: Select[Any]) -> list[R]:
    """The records that a statement finds, which began as `select_records`."""
    kind = KINDS[record]
    return [kind.make(tuple(row)) for row in connection.execute(statement)]


def take_record(record: type[R], values: Iterator[Any]) -> R:
    """The record in the next values of a row that selects `columns_of` several records."""
    kind = KINDS[record]
    found: R = kind.make(tuple(islice(values, len(kind.names))))
    return found


def take_joined_record(record: type[R], values: Iterator[Any]) -> R | None:
    """As `take_record`; None where an outer join found no row, which therefore has no key."""
    kind, found = KINDS[record], take_record(record, values)
    return None if None in kind.key_of(found) else found
