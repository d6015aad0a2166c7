"""Rows of a test's own database, each read or written in a transaction of its own.

Not here: what the product itself reads and writes (`app.storage`), or the server (`postgres`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, Engine, Executable, Table, insert, select, text, update


def execute(engine: Engine, statement: Executable | str, **values: object) -> None:
    """Carry out one statement, or a text of SQL with its values, and commit it."""
    asked = text(statement) if isinstance(statement, str) else statement
    with engine.begin() as connection:
        connection.execute(asked, values or None)


def add_row(engine: Engine, table: Table, **values: object) -> None:
    """One new row."""
    execute(engine, insert(table).values(values))


def add_rows(engine: Engine, table: Table, rows: list[dict[str, Any]]) -> None:
    """New rows, all in one transaction."""
    execute(engine, insert(table).values(rows))


def change_rows(
    engine: Engine, table: Table, *conditions: ColumnElement[bool], **values: object
) -> None:
    """Other values in the rows that meet all conditions: in every row without any."""
    execute(engine, update(table).where(*conditions).values(values))


def change_row(engine: Engine, table: Table, row_id: object, **values: object) -> None:
    """Other values in the row with this id."""
    change_rows(engine, table, table.c.id == row_id, **values)


def fetch(
    engine: Engine, statement: Executable | str, values: Mapping[str, Any] | None = None
) -> list[Any]:
    """All rows that a statement, or a text of SQL, finds."""
    asked = text(statement) if isinstance(statement, str) else statement
    with engine.connect() as connection:
        return list(connection.execute(asked, values).all())


def fetch_value(
    engine: Engine, statement: Executable | str, values: Mapping[str, Any] | None = None
) -> Any:
    """The one value of the one row that a statement finds."""
    [[value]] = fetch(engine, statement, values)
    return value


def waiting_for_locks(engine: Engine) -> int:
    """How many sessions of this database wait for a lock that another one holds."""
    waiting = (
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    return int(fetch_value(engine, waiting))


def rows_of(engine: Engine, table: Table, **equal: object) -> list[Any]:
    """The rows whose columns have these values, by primary key."""
    own = [table.c[name] == value for name, value in equal.items()]
    return fetch(engine, select(table).where(*own).order_by(*table.primary_key))


def row_of(engine: Engine, table: Table, **equal: object) -> Any:
    """The one row whose columns have these values."""
    [row] = rows_of(engine, table, **equal)
    return row
