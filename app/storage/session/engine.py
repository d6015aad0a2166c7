"""Engines on PostgreSQL: time limits for every statement, UTC for every session."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import orjson
import psycopg
from psycopg.pq import ExecStatus
from sqlalchemy import Engine, create_engine, event
from sqlalchemy.exc import DisconnectionError

LOCK_TIMEOUT_MS = 2_000
STATEMENT_TIMEOUT_MS = 30_000
IDLE_IN_TRANSACTION_TIMEOUT_MS = 60_000
PING_AFTER_IDLE_SECONDS = 2.0
"""A connection that lay idle for longer is asked whether it lives before it is handed out."""
_RETURNED_AT = "returned_at"


def make_engine(
    url: str,
    *,
    pool_size: int = 5,
    max_overflow: int = 5,
    application_name: str = "lowtide",
    only_reads: Callable[[], bool] = lambda: False,
) -> Engine:
    """An engine whose sessions refuse to wait for ever.

    url: `postgresql+psycopg://…`. only_reads: asked before each transaction; while it says so,
    transactions are READ ONLY. Before the disk is quite full, that is: PostgreSQL stops, and reads
    with it, once it cannot write its log.
    """
    options = (
        f"-c lock_timeout={LOCK_TIMEOUT_MS} -c statement_timeout={STATEMENT_TIMEOUT_MS} "
        f"-c idle_in_transaction_session_timeout={IDLE_IN_TRANSACTION_TIMEOUT_MS} "
        "-c timezone=UTC"
    )
    engine = create_engine(
        url,
        pool_size=pool_size,
        max_overflow=max_overflow,
        pool_timeout=10,
        # PostgreSQL writes 1e30 out in full. The usual reader makes a whole number of it, beyond
        # what answers can hold; this one reads it as the float that it was.
        json_deserializer=orjson.loads,
        connect_args={
            "options": options,
            "connect_timeout": 5,
            "tcp_user_timeout": STATEMENT_TIMEOUT_MS,
            "application_name": application_name,
        },
    )
    event.listen(engine, "checkin", _record_return)
    event.listen(engine, "checkout", _ping_after_idleness)

    def begin_as_allowed(connection: psycopg.Connection[Any], _record: Any, _pooled: Any) -> None:
        # None leaves it to the server, and costs no statement.
        connection.read_only = True if only_reads() else None

    event.listen(engine, "checkout", begin_as_allowed)
    return engine


def _record_return(_connection: Any, record: Any) -> None:
    record.info[_RETURNED_AT] = time.monotonic()


def _ping_after_idleness(connection: psycopg.Connection[Any], record: Any, _pooled: Any) -> None:
    """Raises DisconnectionError for one that is dead: the pool then opens another."""
    returned_at = record.info.get(_RETURNED_AT)
    if returned_at is None or time.monotonic() - returned_at < PING_AFTER_IDLE_SECONDS:
        return
    try:
        alive = connection.pgconn.exec_(b"").status == ExecStatus.EMPTY_QUERY
    except psycopg.Error as error:
        raise DisconnectionError(str(error)) from error
    if not alive:
        raise DisconnectionError("the server has closed the connection")
