"""The baseline of the queue: one table, SKIP LOCKED, psycopg; claim one job, complete one job.

Not here: our queue (`queue_cost`).
"""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.types.json import Jsonb

_TABLE = """
CREATE TABLE IF NOT EXISTS plain_queue (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    state text NOT NULL DEFAULT 'queued',
    priority int NOT NULL DEFAULT 0,
    payload jsonb NOT NULL,
    claimed_at timestamptz,
    done_at timestamptz
);
CREATE INDEX IF NOT EXISTS plain_queue_ready ON plain_queue (priority DESC, id)
    WHERE state = 'queued'
"""
_CLAIM = """
UPDATE plain_queue SET state = 'running', claimed_at = now()
WHERE id = (
    SELECT id FROM plain_queue WHERE state = 'queued'
    ORDER BY priority DESC, id FOR UPDATE SKIP LOCKED LIMIT 1
)
RETURNING id, payload
"""
_COMPLETE = "UPDATE plain_queue SET state = 'done', done_at = now() WHERE id = %s"


class ReferenceQueue:
    """On a connection of its own; every statement is a transaction."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        self._connection.execute(_TABLE)

    def close(self) -> None:
        """End the connection."""
        self._connection.close()

    def fill(self, count: int, payload: dict[str, Any]) -> None:
        """Queue so many jobs."""
        self._connection.execute(
            "INSERT INTO plain_queue (payload) SELECT %s FROM generate_series(1, %s)",
            (Jsonb(payload), count),
        )
        self._connection.execute("ANALYZE plain_queue")

    def work(self, count: int) -> None:
        """Claim and complete so many."""
        for _ in range(count):
            row = self._connection.execute(_CLAIM).fetchone()
            if row is None:
                raise RuntimeError("the plain queue is empty")
            self._connection.execute(_COMPLETE, (row[0],))
