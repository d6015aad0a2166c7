"""Real servers for tests: one PostgreSQL per run, a migrated template, databases cloned from it.

A new database has to be learnt by every connection, and each statement planned and written anew:
that takes longer than most tests. So a database is lent to one test after the other, emptied
between them, and thrown away once a test changed more than rows.

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
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, make_url, text
from sqlalchemy.exc import DBAPIError

from app.adapters.embedded.servers.postgres_server import ROLE, EmbeddedPostgres
from app.storage.session.engine import make_engine
from app.storage.session.migrate import upgrade

TEMPLATE = "lowtide_template"
# Copying a template is forty times faster in memory than on some disks.
_MEMORY = Path("/dev/shm")
_MEMORY_NEEDED_BYTES = 2 << 30
_PREFIX = "lowtide-test-postgres-"
_BORROWERS = 25
"""Tests that one database serves: what they deleted still lies in its files."""
_PROGRAM = "lowtide-tests"
# What a test may not leave changed: each change of a definition writes a row of the catalogue, with
# the number of its transaction. ANALYZE and VACUUM overwrite theirs in place. PostgreSQL's own
# definitions, nine in ten, have lower numbers (FirstNormalObjectId in its access/transam.h).
_DEFINITIONS = text(
    "SELECT "
    + ", ".join(
        f"(SELECT (count(*), sum(xmin::text::bigint))::text FROM {table} WHERE {number} >= 16384)"
        for table, number in (
            ("pg_class", "oid"),
            ("pg_attribute", "attrelid"),
            ("pg_constraint", "oid"),
            ("pg_trigger", "oid"),
            ("pg_proc", "oid"),
        )
    )
    + ", obj_description(to_regclass('alembic_version'), 'pg_class')"
    ", (SELECT count(*)::text FROM pg_db_role_setting AS own JOIN pg_database AS here"
    " ON here.oid = own.setdatabase AND here.datname = current_database())"
)
# A table with a trigger that fires always refuses even to have no rows deleted: the ledger.
_GUARDED = "EXISTS (SELECT FROM pg_trigger WHERE tgrelid = pg_class.oid AND tgenabled = 'A')"
_TABLES = text(
    f"SELECT string_agg(format('DELETE FROM %I', relname), '; ') FILTER (WHERE NOT {_GUARDED}),"
    " 'SELECT ' || coalesce(string_agg(format('EXISTS (SELECT FROM %I)', relname), ' OR ')"
    f" FILTER (WHERE {_GUARDED}), 'false') FROM pg_class"
    " WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'"
    " AND relname <> 'alembic_version'"
)
# Many tests leave rows in the audit, which are refused to be deleted, too.
_AUDIT = "SELECT EXISTS (SELECT FROM audit_entries) OR EXISTS (SELECT FROM audit_seals)"
_FORGET_AUDIT = "; ".join(
    f"ALTER TABLE {table} DISABLE TRIGGER USER; DELETE FROM {table}; "
    + "; ".join(f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER {one}" for one in triggers)
    for table, triggers in {
        "audit_entries": (
            "audit_entries_append_only",
            "audit_entries_inserted_without_number",
            "audit_entries_numbered_once",
        ),
        "audit_seals": ("audit_seals_append_only",),
    }.items()
)
_OTHERS = text(
    "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
    " WHERE datname = current_database() AND application_name <> :own"
)


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


class LentDatabase:
    """A migrated database without rows, and an engine with the limits that the programs use."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.engine: Engine = make_engine(url, application_name=_PROGRAM)
        self._borrowers = 0
        with self.engine.connect() as connection:
            self._definitions = connection.execute(_DEFINITIONS).one()
            self._empty, self._has_kept_rows = connection.execute(_TABLES).one()

    def is_clean(self) -> bool:
        """Remove what a test left: rows, connections, what a session has set.

        False if the database cannot be lent again: it served long enough, a connection of `engine`
        is still in use, a definition changed, or a table has rows that nobody may delete.
        """
        self._borrowers += 1
        pool: Any = self.engine.pool
        if self._borrowers >= _BORROWERS or pool.checkedout():
            return False
        idle = [self.engine.connect() for _ in range(max(1, pool.checkedin()))]
        try:
            for connection in idle:
                connection.execute(text("SELECT pg_advisory_unlock_all()"))
                connection.exec_driver_sql("RESET ALL")
                connection.commit()
            first = idle[0]
            first.execute(_OTHERS, {"own": _PROGRAM})
            if first.execute(_DEFINITIONS).one() != self._definitions:
                return False
            if first.exec_driver_sql(_AUDIT).scalar_one():
                first.exec_driver_sql(_FORGET_AUDIT)
                first.commit()
                self._definitions = first.execute(_DEFINITIONS).one()
            if first.exec_driver_sql(self._has_kept_rows).scalar_one():
                return False
            # No other trigger and no foreign key looks at it.
            first.exec_driver_sql("SET LOCAL session_replication_role = replica")
            first.exec_driver_sql(self._empty)
            first.commit()
        finally:
            for connection in idle:
                connection.close()
        return True


class PostgresForTests:
    """A server whose databases are cheap: made from a template, lent, dropped."""

    def __init__(self, state_dir: Path) -> None:
        self._server = EmbeddedPostgres(state_dir, fsync=False, max_connections=200)
        self._numbers = itertools.count(1)
        self._connection: Connection | None = None
        self._at_hand: LentDatabase | None = None

    def start(self) -> None:
        """Start the server and migrate the template."""
        self._server.start()
        engine = create_engine(self._server.url, isolation_level="AUTOCOMMIT")
        self._connection = engine.connect()
        # A client hashes the password so often for each of the thousands of connections of a run.
        self._execute("SET scram_iterations = 1")
        self._execute(f"ALTER ROLE {ROLE} PASSWORD '{make_url(self._server.url).password}'")
        self.create_empty(TEMPLATE)
        upgrade(self.url_of(TEMPLATE))
        # The kernel copies the files: a tenth of the time that the write-ahead log would take.
        self._execute("SET file_copy_method = clone")

    def stop(self) -> None:
        """Stop the server."""
        if self._at_hand is not None:
            self._at_hand.engine.dispose()
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

    def clone(self, of: str | None = None) -> str:
        """A database with the newest schema and no rows; returns its URL.

        of: the URL of one to copy with its rows, which nobody may be connected to.
        """
        name, template = self._next_name(), TEMPLATE if of is None else make_url(of).database
        self._execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
        return self.url_of(name)

    @contextlib.contextmanager
    def lend(self) -> Iterator[LentDatabase]:
        """A database with the newest schema and no rows, perhaps one that was lent before."""
        lent, self._at_hand = self._at_hand or LentDatabase(self.clone()), None
        clean = False
        try:
            yield lent
            with contextlib.suppress(DBAPIError):  # a test may have left a server that is not up
                clean = lent.is_clean()
        finally:
            if clean:
                self._at_hand = lent
            else:
                lent.engine.dispose()
                self.drop(lent.url)

    def drop(self, url: str) -> None:
        """Remove a database, whoever is still connected to it."""
        self._execute(f"DROP DATABASE IF EXISTS {make_url(url).database} WITH (FORCE)")

    def _next_name(self) -> str:
        return f"lowtide_test_{next(self._numbers)}"

    def _execute(self, statement: str) -> None:
        """One connection for all: a new one costs more than what it is for."""
        assert self._connection is not None, "the server was not started"
        self._connection.execute(text(statement))
