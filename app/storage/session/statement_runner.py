"""How statements that are text reach PostgreSQL: several in one round trip, by the driver's means.

Parameters go without a type of their own: the statement says each one's (`%(at)s::TYPE`), so that
one prepared statement serves them all. Not here: which statements there are, or when a transaction
ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

Statement = tuple[str, Mapping[str, Any]]
"""A text with `%(name)s` parameters, and what they stand for."""

COMMIT: Statement = ("COMMIT", {})
PREPARED_MAX = 300
"""Statements that a connection keeps prepared: about as many as the control plane has."""


class StatementFailed(Exception):
    """One of several statements failed; `cause` is the driver's error."""

    def __init__(self, statements: Sequence[Statement], cause: psycopg.Error) -> None:
        super().__init__(str(cause))
        self.statements = statements
        self.cause = cause


class StatementRunner:
    """The way into one connection, which begins a transaction with the first statement."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        connection.prepared_max = PREPARED_MAX
        self._connection = connection

    @property
    def idle(self) -> bool:
        """Whether no transaction is open."""
        return self._connection.info.transaction_status == TransactionStatus.IDLE

    @property
    def aborted(self) -> bool:
        """Whether a statement failed in the open transaction, which can only be undone."""
        return self._connection.info.transaction_status == TransactionStatus.INERROR

    def run(self, statements: Sequence[Statement]) -> list[list[tuple[Any, ...]]]:
        """The rows of each, in order. Raises StatementFailed when one of them fails."""
        try:
            if len(statements) == 1:
                return [_rows(self._started(statements[0]))]
            with self._connection.pipeline():
                cursors = [self._started(statement) for statement in statements]
            return [_rows(cursor) for cursor in cursors]
        except psycopg.Error as error:
            raise StatementFailed(statements, error) from error

    def _started(self, statement: Statement) -> psycopg.Cursor[tuple[Any, ...]]:
        text, given = statement
        return self._connection.cursor().execute(text, given or None)


def _rows(cursor: psycopg.Cursor[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    # `description` would tell the same, and makes an object for each column to do so.
    result = cursor.pgresult
    return [] if result is None or result.nfields == 0 else cursor.fetchall()
