"""Real servers for tests: one PostgreSQL per run, a migrated template, a clone for each test.

Not here: the fixtures that hand them out (tests/conftest.py) and records to fill them with.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import Connection, create_engine, make_url, text

from app.adapters.embedded.postgres_server import EmbeddedPostgres
from app.adapters.postgres.migrate import upgrade

TEMPLATE = "lowtide_template"
# Copying a template is forty times faster in memory than on some disks.
_MEMORY = Path("/dev/shm")
_MEMORY_NEEDED_BYTES = 2 << 30
_PREFIX = "lowtide-test-postgres-"


@contextlib.contextmanager
def fast_folder() -> Iterator[Path]:
    """A temporary folder that every account may enter, in memory where there is room."""
    roomy = _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free >= _MEMORY_NEEDED_BYTES
    parent = _MEMORY if roomy and os.access(_MEMORY, os.W_OK) else Path(tempfile.gettempdir())
    _remove_left_overs(parent)
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=parent))
    folder.chmod(0o711)
    try:
        yield folder.resolve()
    finally:
        shutil.rmtree(folder)


def _remove_left_overs(parent: Path) -> None:
    """Remove what killed runs left; a server still running there sees it and ends by itself."""
    for folder in parent.glob(f"{_PREFIX}*"):
        owner_pid = int(folder.name.removeprefix(_PREFIX).partition("-")[0])
        try:
            os.kill(owner_pid, 0)
        except ProcessLookupError:
            shutil.rmtree(folder, ignore_errors=True)
        except PermissionError:
            continue  # someone else's run, still going


class PostgresForTests:
    """A server whose databases are cheap: made from a template, dropped when the test ends."""

    def __init__(self, state_dir: Path) -> None:
        self._server = EmbeddedPostgres(state_dir, fsync=False, max_connections=200)
        self._numbers = itertools.count(1)
        self._connection: Connection | None = None

    def start(self) -> None:
        """Start the server and migrate the template."""
        self._server.start()
        engine = create_engine(self._server.url, isolation_level="AUTOCOMMIT")
        self._connection = engine.connect()
        self.create_empty(TEMPLATE)
        upgrade(self.url_of(TEMPLATE))
        # The kernel copies the files: a tenth of the time that the write-ahead log would take.
        self._execute("SET file_copy_method = clone")

    def stop(self) -> None:
        """Stop the server."""
        if self._connection is not None:
            self._connection.close()
            self._connection.engine.dispose()
        self._server.stop()

    def url_of(self, database: str) -> str:
        """The URL of one database of the server."""
        return make_url(self._server.url).set(database=database).render_as_string(False)

    def create_empty(self, name: str | None = None) -> str:
        """A database without any table; returns its URL."""
        name = name or self._next_name()
        self._execute(f"CREATE DATABASE {name} TEMPLATE template0")
        return self.url_of(name)

    def clone(self) -> str:
        """A database with the newest schema and no rows; returns its URL."""
        name = self._next_name()
        self._execute(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE} STRATEGY file_copy")
        return self.url_of(name)

    def drop(self, url: str) -> None:
        """Remove a database, whoever is still connected to it."""
        self._execute(f"DROP DATABASE IF EXISTS {make_url(url).database} WITH (FORCE)")

    def _next_name(self) -> str:
        return f"lowtide_test_{next(self._numbers)}"

    def _execute(self, statement: str) -> None:
        """One connection for all: a new one costs more than what it is for."""
        assert self._connection is not None, "the server was not started"
        self._connection.execute(text(statement))
