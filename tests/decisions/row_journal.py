"""A database that writes down every change of its rows: what a transaction did, whoever did it.

Lives here: the triggers and reading what they wrote. They stand in databases of recordings and
replays only. Not here: what a change means (`outcome`), or putting rows in place (`stored_state`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy import Connection, Engine, StaticPool, create_engine, text

# Who brings every table into the metadata.
from app.storage import unit_of_work  # noqa: F401
from app.storage.schema.schema import metadata

Row = dict[str, Any]
Place = tuple[str, tuple[Any, ...]]
"""A row's table and key."""

_READ = text(
    "SELECT seq, relation, before::text, after::text FROM recorded_changes "
    "WHERE seq > :after ORDER BY seq"
)
_MAKE = """
CREATE TABLE recorded_changes (
    seq bigserial PRIMARY KEY, relation text NOT NULL, before jsonb, after jsonb
);
CREATE FUNCTION record_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO recorded_changes (relation, before, after) VALUES (
        TG_TABLE_NAME,
        CASE WHEN TG_OP = 'INSERT' THEN NULL ELSE to_jsonb(OLD) END,
        CASE WHEN TG_OP = 'DELETE' THEN NULL ELSE to_jsonb(NEW) END
    );
    RETURN NULL;
END $$;
"""
_WATCH = (
    "CREATE TRIGGER recorded_change AFTER INSERT OR UPDATE OR DELETE ON {table} "
    "FOR EACH ROW EXECUTE FUNCTION record_change()"
)

KEYS: dict[str, tuple[str, ...]] = {
    str(table.name): tuple(str(column.name) for column in table.primary_key)
    for table in metadata.sorted_tables
}
"""The columns of each table's key."""


@dataclass(frozen=True)
class Change:
    """One row before and after; None where it was not there. Nulls are left out."""

    seq: int
    table: str
    before: Row | None
    after: Row | None

    @property
    def place(self) -> Place:
        """Which row it is."""
        return place_of(self.table, self.after or self.before or {})


def place_of(table: str, row: Row) -> Place:
    """A row's table and key."""
    return table, tuple(row.get(name) for name in KEYS[table])


def begin_journal(url: str) -> None:
    """Have an empty, migrated database write down its changes from now on."""
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql(_MAKE)
        for table in KEYS:
            connection.exec_driver_sql(_WATCH.format(table=table))
    engine.dispose()


def one_connection(url: str) -> Engine:
    """An engine like the simulator's: one connection, and rows found by index."""
    return create_engine(
        url,
        poolclass=StaticPool,
        connect_args={
            "options": "-c timezone=UTC -c jit=off -c enable_seqscan=off",
            "connect_timeout": 5,
            "prepare_threshold": None,
        },
    )


def changes_since(connection: Connection, after: int) -> list[Change]:
    """What was written since that number, in order; uncommitted changes of this connection too."""
    return [
        Change(seq, table, _row(before), _row(later))
        for seq, table, before, later in connection.execute(_READ, {"after": after})
    ]


def _row(document: str | None) -> Row | None:
    if document is None:
        return None
    return {name: value for name, value in orjson.loads(document).items() if value is not None}
