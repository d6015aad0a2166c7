"""One line for all rows of each table, in the order of their keys, for the event log's digest.

Not here: what the rows should be (`invariants`).
"""

from __future__ import annotations

import hashlib

from sqlalchemy import Connection, MetaData, select

from app.simulation.engine.event_log import EventLog
from app.storage.schema.tables import metadata

_LEFT_OUT = frozenset({"controller_runs"})


def log_tables(connection: Connection, log: EventLog, known: MetaData = metadata) -> None:
    """Write a digest of every table into the log."""
    for table in sorted(known.tables.values(), key=lambda one: one.name):
        if table.name in _LEFT_OUT:
            continue
        digest, rows = hashlib.sha256(), 0
        for row in connection.execute(select(table).order_by(*table.primary_key.columns)):
            digest.update(repr(tuple(row)).encode())
            rows += 1
        log.write("table", f"{table.name}: {rows} rows, {digest.hexdigest()[:16]}")
