"""Brings a database's schema to a revision: `upgrade`, `downgrade`, `current`, `head`.

Works wherever the package is installed, without an alembic.ini. Not here: the migrations
(`migrations/versions`) and their limits and turns (`migrations/env.py`).
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
from sqlalchemy import Connection, NullPool, create_engine
from sqlalchemy.exc import OperationalError

from app.storage.session.revision import scripts_folder

_CONNECT_TIMEOUT_SECONDS = 5
_TRIES = 8
_PAUSE_SECONDS = 1.0
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
        config.attributes["connection"] = connection
        action(config)


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
