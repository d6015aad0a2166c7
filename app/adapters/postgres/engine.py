"""Engines on PostgreSQL: time limits for every statement, UTC for every session."""

from __future__ import annotations

import orjson
from sqlalchemy import Engine, create_engine

LOCK_TIMEOUT_MS = 2_000
STATEMENT_TIMEOUT_MS = 30_000
IDLE_IN_TRANSACTION_TIMEOUT_MS = 60_000


def make_engine(
    url: str, *, pool_size: int = 5, max_overflow: int = 5, application_name: str = "lowtide"
) -> Engine:
    """An engine whose sessions refuse to wait for ever.

    url: `postgresql+psycopg://…`.
    """
    options = (
        f"-c lock_timeout={LOCK_TIMEOUT_MS} -c statement_timeout={STATEMENT_TIMEOUT_MS} "
        f"-c idle_in_transaction_session_timeout={IDLE_IN_TRANSACTION_TIMEOUT_MS} "
        "-c timezone=UTC"
    )
    return create_engine(
        url,
        pool_size=pool_size,
        max_overflow=max_overflow,
        pool_pre_ping=True,
        pool_timeout=10,
        # PostgreSQL writes 1e30 out in full. The usual reader makes a whole number of it, beyond
        # what answers can hold; this one reads it as the float that it was.
        json_deserializer=orjson.loads,
        connect_args={
            "options": options,
            "connect_timeout": 5,
            "application_name": application_name,
        },
    )
