"""A PostgreSQL for simulations run by hand: in a temporary folder, without fsync, gone afterwards.

Not here: the databases of tests, which clone a template of their own server.
"""

from __future__ import annotations

import itertools
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

from sqlalchemy import Engine, create_engine, make_url, text

from app.adapters.embedded.servers.postgres_server import EmbeddedPostgres
from app.storage.session.migrate import upgrade

_ENDING: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class ScratchDatabases:
    """Migrated, empty databases of one server, as many as are asked for; from any thread."""

    def __init__(self, url: str) -> None:
        """url: of a migrated database without rows, which they are copied from."""
        self._template = make_url(url)
        self._engine: Engine = create_engine(
            self._template.set(database="postgres"), isolation_level="AUTOCOMMIT"
        )
        self._numbers = itertools.count(1)
        # One after the other: two copies of a template at once would wait for each other anyway.
        self._lock = threading.Lock()

    @contextmanager
    def one(self) -> Iterator[str]:
        """The URL of a database that is dropped afterwards."""
        name = f"simulation_{next(self._numbers)}"
        self._execute(f'CREATE DATABASE {name} TEMPLATE "{self._template.database}"')
        try:
            yield self._template.set(database=name).render_as_string(hide_password=False)
        finally:
            self._execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def close(self) -> None:
        """No further ones."""
        self._engine.dispose()

    def _execute(self, statement: str) -> None:
        with self._lock, self._engine.connect() as connection:
            connection.execute(text(statement))


@contextmanager
def scratch_databases() -> Iterator[ScratchDatabases]:
    """As many databases as are asked for, on a server as in `scratch_database`."""
    with scratch_database() as url:
        databases = ScratchDatabases(url)
        try:
            yield databases
        finally:
            databases.close()


@contextmanager
def scratch_database() -> Iterator[str]:
    """The URL of a migrated, empty database.

    Server and folder go when the program is ended by SIGTERM, SIGINT or SIGHUP, too: these raise
    SystemExit in the block. Call it from the main thread.
    """
    with _signals_raise():
        # Held back until there is something to remove, and somebody who does it.
        signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
        folder = Path(tempfile.mkdtemp(prefix="lowtide-simulation-"))
        folder.chmod(0o711)
        server = EmbeddedPostgres(folder / "postgres", fsync=False)
        try:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
            server.start()
            upgrade(server.url)
            yield server.url
        finally:
            server.stop()
            for left in (server.home, folder):
                shutil.rmtree(left, ignore_errors=True)


@contextmanager
def _signals_raise() -> Iterator[None]:
    # What our starter had us ignore, as nohup does, stays ignored.
    heard = [number for number in _ENDING if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, _end) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(number: int, _frame: FrameType | None) -> NoReturn:
    # A second signal must not end what the first one has asked for.
    for other in _ENDING:
        signal.signal(other, signal.SIG_IGN)
    sys.exit(128 + number)
