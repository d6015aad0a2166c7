"""Yesterday's dump of a database: every row of every table, and the way back to it.

Not here: databases of their own for each test (`postgres`).
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Engine, Table, delete, insert, select, text

from app.storage.schema.tables import metadata

Dump = dict[Table, list[dict[str, Any]]]


def dump(engine: Engine) -> Dump:
    """All rows, as they are now."""
    with engine.connect() as connection:
        return {
            table: [dict(row._mapping) for row in connection.execute(select(table))]
            for table in metadata.sorted_tables
        }


def restore(engine: Engine, taken: Dump) -> None:
    """The rows of the dump and no others, as a restored database has them.

    The ledger refuses to be emptied: it must hold nothing that the dump does not.
    """
    now = dump(engine)
    with engine.begin() as connection:
        # As pg_restore does: nothing is checked between tables until all rows are there.
        connection.execute(text("SET LOCAL session_replication_role = replica"))
        for table in reversed(metadata.sorted_tables):
            if now[table] != taken[table]:
                connection.execute(delete(table))
        for table in metadata.sorted_tables:
            if now[table] != taken[table] and taken[table]:
                connection.execute(insert(table), taken[table])
