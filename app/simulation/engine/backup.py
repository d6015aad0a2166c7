"""A backup of a simulated world's database, and the way back to it.

Only the rows go back: machines, agents, the store and the clouds go on. Not here: what else has to
forget what it saw (`World.restored`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine, create_engine, text

_MAINTENANCE = "postgres"


class Backup:
    """One database as it was when this was made. Its name is the database's with an ending."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._live = str(engine.url.database)
        self._kept = f"{self._live}_backup"
        self._copy(self._live, self._kept)

    def put_back(self) -> None:
        """The database is again what it was."""
        self._copy(self._kept, self._live)

    def remove(self) -> None:
        """Nobody goes back to it any more."""
        with self._server() as connection:
            connection.execute(text(f'DROP DATABASE IF EXISTS "{self._kept}" WITH (FORCE)'))

    def _copy(self, source: str, target: str) -> None:
        # A template must have no other connection, not even ours.
        self._engine.dispose()
        with self._server() as connection:
            connection.execute(text(f'DROP DATABASE IF EXISTS "{target}" WITH (FORCE)'))
            connection.execute(text(f'CREATE DATABASE "{target}" TEMPLATE "{source}"'))

    @contextmanager
    def _server(self) -> Iterator[Connection]:
        url = self._engine.url.set(database=_MAINTENANCE)
        engine = create_engine(url, isolation_level="AUTOCOMMIT")
        try:
            with engine.connect() as connection:
                yield connection
        finally:
            engine.dispose()
