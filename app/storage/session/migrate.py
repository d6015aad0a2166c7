"""Brings a database's schema to a revision: `upgrade`, `downgrade`, `current`, `head`.

Works wherever the package is installed, without an alembic.ini. Not here: the migrations
(`migrations/versions`) and their limits (`migrations/env.py`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from psycopg.errors import DeadlockDetected, LockNotAvailable
from sqlalchemy import Connection, NullPool, create_engine, text
from sqlalchemy.exc import OperationalError

from app.storage.session.revision import scripts_folder

_CONNECT_TIMEOUT_SECONDS = 5
_TRIES = 8
_PAUSE_SECONDS = 1.0
# Any fixed number: all migrators of this project agree on it, nobody else uses it.
_TURN_LOCK_ID = 0x10_71DE
# How long one migrator waits for another to finish: 120 s.
_TURN_TRIES = 600
_TURN_PAUSE_SECONDS = 0.2
# Alembic keeps the migration that is running in a global; the database's own lock does the same
# for several processes.
_one_at_a_time = threading.Lock()


def upgrade(url: str, revision: str = "head") -> None:
    """Migrate the database at `url` (`postgresql+psycopg://…`) forward to `revision`.

    Waits while another migrator is at work. Programs may use the database meanwhile: where one of
    them holds a table, what is not committed is undone and tried again, a few times. Raises
    sqlalchemy.exc.OperationalError when the database cannot be reached or stays busy.
    """
    for tries_left in reversed(range(_TRIES)):
        try:
            _run(url, lambda config: command.upgrade(config, revision))
            return
        except OperationalError as error:
            if not tries_left or not _met_a_program(error):
                raise
            time.sleep(_PAUSE_SECONDS)


def downgrade(url: str, revision: str) -> None:
    """Migrate the database at `url` back to `revision`; `base` removes every table."""
    _run(url, lambda config: command.downgrade(config, revision))


def current(url: str) -> str | None:
    """The revision of the database at `url`; None before the first migration."""
    with _connect(url) as connection:
        return MigrationContext.configure(connection).get_current_revision()


def head() -> str:
    """The newest revision this release brings."""
    found = ScriptDirectory.from_config(_config()).get_current_head()
    if found is None:
        raise RuntimeError("the package 'migrations' holds no migration; install lowtide again")
    return found


def _met_a_program(error: OperationalError) -> bool:
    """Whether a table was in use; another migrator was waited for long enough already."""
    waited_for_turn = "pg_advisory_lock" in (error.statement or "")
    return isinstance(error.orig, LockNotAvailable | DeadlockDetected) and not waited_for_turn


def _config() -> Config:
    config = Config()
    # Alembic reads % as the start of a placeholder.
    config.set_main_option("script_location", str(scripts_folder()).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def _run(url: str, action: Callable[[Config], None]) -> None:
    config = _config()
    with _one_at_a_time, _connect(url) as connection:
        _take_turn(connection)
        config.attributes["connection"] = connection
        action(config)


def _take_turn(connection: Connection) -> None:
    """Wait until no other migrator is at work; the turn ends with the session.

    The session holds it, not the transaction, so that a migration may also commit in its middle.
    And it is waited for in no transaction: where the other one builds an index beside programs, it
    waits for every transaction that has begun, and the two would wait for each other.
    """
    turn = {"id": _TURN_LOCK_ID}
    for _ in range(_TURN_TRIES):
        taken = connection.execute(text("SELECT pg_try_advisory_lock(:id)"), turn).scalar_one()
        connection.commit()
        if taken:
            return
        time.sleep(_TURN_PAUSE_SECONDS)
    # Fails as every wait for a lock does that takes too long.
    connection.execute(text("SET lock_timeout = '1ms'"))
    connection.execute(text("SELECT pg_advisory_lock(:id)"), turn)


def _connect(url: str) -> Connection:
    engine = create_engine(
        url,
        poolclass=NullPool,
        connect_args={
            "connect_timeout": _CONNECT_TIMEOUT_SECONDS,
            "application_name": "lowtide-migrate",
        },
    )
    return engine.connect()
