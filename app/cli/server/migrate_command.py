"""`lowtide migrate`, and the preparation of a database that `lowtide up` does as well.

Not here: the migrations (`migrations`) or the first rows
(`app.orchestration.access.first_use`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import typer

from app.adapters.system_entropy import SystemEntropy
from app.cli.client.failures import UNREACHABLE, CommandFailed
from app.cli.client.local_command import (
    AsJson,
    Quiet,
    StateDir,
    ending_well,
    first_line,
    settings_with,
)
from app.cli.client.terminal import Terminal
from app.domain.access.person_rules import invitation_path
from app.settings import Settings

KEY_FILE = "admin.key"


@dataclass(frozen=True)
class PreparedDatabase:
    """Revisions before (None: it was empty) and after. Of a new one: the first key's file, and the
    path, with its secret, of the page that makes the first admin. is_newer: a newer release than
    this one has migrated it.
    """

    before: str | None
    after: str
    key_path: Path | None
    first_admin_path: str | None = field(default=None, repr=False)
    is_newer: bool = False

    def lines(self) -> list[str]:
        """What was done."""
        if self.is_newer:
            return [
                f"The database is at revision {self.after}, which a newer release has made; "
                "it was left as it is. Only the release just before that one runs on it."
            ]
        if self.before == self.after:
            lines = [f"The database is at revision {self.after} already."]
        else:
            was = "it was empty" if self.before is None else f"it was at {self.before}"
            lines = [f"The database is at revision {self.after} now; {was}."]
        if self.key_path is not None:
            lines.append(f"The first API key is in {self.key_path}; it is not shown anywhere else.")
        return lines

    def first_admin_line(self, address: str | None) -> str | None:
        """Where the first admin signs in; None for a database of before. Not for a log that is
        kept. address: the api's, if it is known.
        """
        if self.first_admin_path is None:
            return None
        where = f"{address or 'the address of the api followed by '}{self.first_admin_path}"
        return f"First admin, once and within 72 hours: {where}"


def register(program: typer.Typer) -> None:
    """Add the command."""
    program.command("migrate")(migrate)


def migrate(state_dir: StateDir = None, as_json: AsJson = False, quiet: Quiet = False) -> None:
    """Bring the database to this release's schema.

    `lowtide up` does it by itself. Works on LOWTIDE_DATABASE_URL, else on the database in the state
    folder. A new database also gets its default project and first API key, written to admin.key in
    the state folder, and a link for the first admin, printed once. Safe to repeat, and to run
    from several machines at once.
    """
    from sqlalchemy.exc import SQLAlchemyError

    from app.adapters.embedded.embedded_errors import (
        EmbeddedServerError,
        StateFolderBusyError,
        StateFolderUnusableError,
    )

    terminal = Terminal(as_json=as_json, quiet=quiet)
    with ending_well(terminal):
        settings = settings_with(state_dir=state_dir)
        try:
            with database_of(settings) as url:
                done = prepare_database(url, settings.state_dir)
        except StateFolderUnusableError as error:
            raise CommandFailed(str(error)) from error
        except (SQLAlchemyError, EmbeddedServerError, StateFolderBusyError) as error:
            message = f"the database could not be migrated: {first_line(error)}"
            raise CommandFailed(message, UNREACHABLE) from error
        if as_json:
            key_path = None if done.key_path is None else str(done.key_path)
            terminal.json(
                {
                    "before": done.before,
                    "after": done.after,
                    "key_path": key_path,
                    "first_admin_path": done.first_admin_path,
                }
            )
        for line in (*done.lines(), done.first_admin_line(settings.public_url)):
            if line is not None:
                terminal.line(line)


def prepare_database(url: str, state_dir: Path) -> PreparedDatabase:
    """Migrate, and write the first rows into a new database.

    Raises SQLAlchemyError when the database does not answer or refuses, and CommandFailed when
    another version's migrations made it.
    """
    from app.storage.session.revision import found_schema, newest_revision

    found = found_schema(url)
    if found.mark is not None and not found.mark.is_ours:
        raise CommandFailed(_of_another_version(found.mark.revision, state_dir))
    head = newest_revision()
    if found.mark is not None and found.mark.revision > head:
        revision = found.mark.revision
        return PreparedDatabase(revision, revision, None, is_newer=True)
    if found.has_first_rows and found.mark is not None and found.mark.revision == head:
        return PreparedDatabase(head, head, None)

    from app.adapters.embedded.processes.state_folder import open_state_folder, write_atomically
    from app.bootstrap import NoWakeups
    from app.orchestration.access.first_use import prepare_first_use
    from app.storage.session import migrate as migrations
    from app.storage.session.engine import make_engine
    from app.storage.unit_of_work import PostgresUnitOfWorkFactory

    before = migrations.current(url)
    if before != head:
        migrations.upgrade(url)
    key_path = open_state_folder(state_dir) / KEY_FILE
    engine = make_engine(url, pool_size=1, max_overflow=0, application_name="lowtide-migrate")
    try:
        token = prepare_first_use(
            PostgresUnitOfWorkFactory(engine, NoWakeups()),
            SystemEntropy(),
            lambda key: write_atomically(key_path, f"{key}\n", 0o600),
        )
    finally:
        engine.dispose()
    if token is None:
        return PreparedDatabase(before, head, None)
    return PreparedDatabase(before, head, key_path, invitation_path(token))


def _of_another_version(revision: str, state_dir: Path) -> str:
    return (
        f"the database was made by another development version of Lowtide: both call its schema "
        f"{revision}, but the tables differ. Nothing was changed. Use the version that made it, "
        f"or start over with another --state-dir than {state_dir} (or, with LOWTIDE_DATABASE_URL, "
        "an empty database)"
    )


@contextmanager
def database_of(settings: Settings) -> Iterator[str]:
    """The URL of the database; one of our own is started when it is not running."""
    if settings.database_url is not None:
        yield settings.database_url
        return
    from app.adapters.embedded.servers.postgres_server import EmbeddedPostgres

    if not settings.state_dir.is_dir():
        raise CommandFailed(
            f"there is no database: LOWTIDE_DATABASE_URL is not set, and {settings.state_dir} "
            "does not exist; `lowtide up` creates both and migrates"
        )
    server = EmbeddedPostgres(settings.state_dir)
    was_running = server.is_running()
    try:
        yield server.start()
    finally:
        if not was_running:
            server.stop()
