"""An embedded PostgreSQL: its data folder, its options, and how to know that it is ours and well.

Not here: starting, adopting and stopping (see `embedded_server`), the schema, migrations.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import psycopg

from app.adapters.embedded.embedded_errors import EmbeddedServerError
from app.adapters.embedded.processes import process_identity
from app.adapters.embedded.processes.process_identity import ProcessIdentity
from app.adapters.embedded.processes.state_folder import kept_line, kept_secret, write_atomically
from app.adapters.embedded.servers.binaries import POSTGRES_MAJOR_VERSION
from app.adapters.embedded.servers.embedded_server import EmbeddedServer

ROLE = "lowtide"
DATABASE = "lowtide"
_INITDB_TIMEOUT_SECONDS = 120.0
_CONNECT_TIMEOUT_SECONDS = 2
# A statement that failed, and its text: whoever sent it says what that means.
_OF_A_STATEMENT = re.compile(
    rb".{0,60}\[\d+\] (ERROR|STATEMENT|DETAIL|HINT|CONTEXT|QUERY|LOCATION): "
)
# Lines of postmaster.pid (PostgreSQL: src/include/utils/pidfile.h).
_PID_LINE, _PORT_LINE, _STATUS_LINE = 0, 3, 7


class EmbeddedPostgres(EmbeddedServer):
    """PostgreSQL 18 with one superuser and one database, both called `lowtide`."""

    name: ClassVar[str] = "postgres"
    # SIGINT is its "fast" shutdown: clients are cut off, data is flushed.
    stop_signal: ClassVar[int] = signal.SIGINT
    unechoed: ClassVar[re.Pattern[bytes] | None] = _OF_A_STATEMENT

    def __init__(
        self,
        state_dir: Path,
        *,
        fsync: bool = True,
        max_connections: int = 100,
        shared_buffers_mb: int = 64,
        start_timeout_seconds: float = 60.0,
        stop_timeout_seconds: float = 20.0,
        system_dir: Path | None = None,
    ) -> None:
        """`fsync` False is for tests: faster, and a power cut may then destroy the data."""
        super().__init__(
            state_dir,
            start_timeout_seconds=start_timeout_seconds,
            stop_timeout_seconds=stop_timeout_seconds,
            system_dir=system_dir,
        )
        self._fsync = fsync
        self._max_connections = max_connections
        self._shared_buffers_mb = shared_buffers_mb

    @property
    def data_dir(self) -> Path:
        """Where PostgreSQL keeps its data."""
        return self.home / "postgres"

    def url_at(self, port: int) -> str:
        """The SQLAlchemy URL for psycopg 3."""
        return f"postgresql+psycopg://{ROLE}:{self._password()}@127.0.0.1:{port}/{DATABASE}"

    def accepts_connections(self, port: int) -> bool:
        """True when a connection with our role, password and database succeeds."""
        # Asking before it says so would only fill its log with refusals.
        if self._pid_file_line(_STATUS_LINE) != "ready":
            return False
        try:
            psycopg.connect(
                host="127.0.0.1",
                port=port,
                user=ROLE,
                password=self._password(),
                dbname=DATABASE,
                sslmode="disable",
                gssencmode="disable",
                connect_timeout=_CONNECT_TIMEOUT_SECONDS,
            ).close()
        except psycopg.OperationalError:
            return False
        return True

    def live_identity(self) -> ProcessIdentity | None:
        """The process named in postmaster.pid, if it is a postgres for this very data folder."""
        pid = self._pid_file_number(_PID_LINE)
        if not process_identity.command_mentions(pid, "postgres", str(self.data_dir)):
            return None
        return process_identity.identify(pid)

    def live_port(self) -> int:
        """The port in postmaster.pid."""
        return self._pid_file_number(_PORT_LINE)

    def command_at(self, port: int) -> list[str]:
        """Make the data folder the first time, clear a stale lock, and give the command."""
        if not self.data_dir.exists():
            self._make_data_dir()
        self._check_data_dir()
        self._disown_stale_lock()
        return [
            str(self.server_binaries.postgres),
            "-D",
            str(self.data_dir),
            *(word for option in self._options(port) for word in ("-c", option)),
        ]

    def _options(self, port: int) -> list[str]:
        return [
            "listen_addresses=127.0.0.1",
            f"port={port}",
            "unix_socket_directories=",
            f"fsync={'on' if self._fsync else 'off'}",
            f"full_page_writes={'on' if self._fsync else 'off'}",
            f"max_connections={self._max_connections}",
            f"shared_buffers={self._shared_buffers_mb}MB",
            # One machine, one small database: no replication, few helpers, a short log.
            "wal_level=minimal",
            "max_wal_senders=0",
            "max_logical_replication_workers=0",
            "min_wal_size=32MB",
            "max_wal_size=512MB",
            "io_method=sync",
            # After a crash: one flush of the file system instead of one per file (4 s to 0.3 s).
            f"recovery_init_sync_method={'syncfs' if sys.platform == 'linux' else 'fsync'}",
            "max_parallel_workers_per_gather=0",
            "jit=off",
            "timezone=UTC",
            "log_timezone=UTC",
            "log_checkpoints=off",
            "logging_collector=off",
        ]

    def _password(self) -> str:
        return kept_secret(self._password_path)

    @property
    def _password_path(self) -> Path:
        return self.state_dir / "postgres_password"

    def _pid_file_line(self, line: int) -> str:
        try:
            lines = (self.data_dir / "postmaster.pid").read_text("utf-8").splitlines()
        except FileNotFoundError:
            return ""
        return lines[line].strip() if line < len(lines) else ""

    def _pid_file_number(self, line: int) -> int:
        text = self._pid_file_line(line)
        return int(text) if text.isdecimal() else 0

    def _disown_stale_lock(self) -> None:
        """Let postgres start although the pid in a stale postmaster.pid is in use or unreaped.

        Postgres takes a lock held by its own parent for stale, so the file is made to name us. It
        is not deleted, because postgres also reads from it which shared memory to look at for
        backends of the killed server that may still be writing.
        """
        path = self.data_dir / "postmaster.pid"
        if self._pid_file_number(_PID_LINE) and self.live_identity() is None:
            rest = path.read_text("utf-8").splitlines(keepends=True)[1:]
            write_atomically(path, f"{os.getpid()}\n" + "".join(rest))
            if self.account is not None:
                os.chown(path, self.account.uid, self.account.gid, follow_symlinks=False)

    def _check_data_dir(self) -> None:
        version = (self.data_dir / "PG_VERSION").read_text("ascii").strip()
        if version != POSTGRES_MAJOR_VERSION:
            raise EmbeddedServerError(
                f"{self.data_dir} was written by PostgreSQL {version}, but this release brings "
                f"PostgreSQL {POSTGRES_MAJOR_VERSION}; dump it with the old release and load it "
                "into a new state folder"
            )
        if kept_line(self._password_path) is None:
            raise EmbeddedServerError(
                f"{self._password_path} is missing, and without it the data in {self.data_dir} "
                "cannot be opened; put the file back, or start with a new state folder"
            )

    def _make_data_dir(self) -> None:
        """Build the data folder under another name and rename it, so that half of one never counts.

        Raises EmbeddedServerError with what initdb or postgres said.
        """
        for left_over in self.home.glob("postgres.new-*"):
            shutil.rmtree(left_over, ignore_errors=True)
        draft = self.data_dir.with_name(f"postgres.new-{os.getpid()}")
        draft.mkdir(mode=0o700)
        if self.account is not None:
            os.chown(draft, self.account.uid, self.account.gid)
        self._run_initdb(draft)
        self._create_database(draft)
        draft.rename(self.data_dir)

    def _run_initdb(self, folder: Path) -> None:
        read_end, write_end = os.pipe()
        try:
            # A pipe belongs to its maker, and initdb opens /dev/stdin afresh as its own account.
            if self.account is not None:
                os.fchown(read_end, self.account.uid, self.account.gid)
            os.write(write_end, self._password().encode("ascii") + b"\n")
            os.close(write_end)
            self._run_tool(
                [
                    str(self.server_binaries.initdb),
                    f"--pgdata={folder}",
                    f"--username={ROLE}",
                    "--auth=scram-sha-256",
                    "--pwfile=/dev/stdin",
                    "--encoding=UTF8",
                    "--locale=C",
                    "--locale-provider=builtin",
                    "--builtin-locale=C.UTF-8",
                    "--no-sync",
                    "--no-instructions",
                ],
                stdin=read_end,
            )
        finally:
            os.close(read_end)

    def _create_database(self, folder: Path) -> None:
        read_end, write_end = os.pipe()
        try:
            os.write(write_end, f"CREATE DATABASE {DATABASE}\n".encode("ascii"))
            os.close(write_end)
            command = [str(self.server_binaries.postgres), "--single", "-F", "-D", str(folder)]
            said = self._run_tool([*command, "postgres"], stdin=read_end)
        finally:
            os.close(read_end)
        # Single-user mode exits with 0 even when a statement fails.
        if "ERROR:" in said:
            raise EmbeddedServerError(f"could not create the database {DATABASE}:\n{said}")

    def _run_tool(self, command: list[str], stdin: int) -> str:
        try:
            done = subprocess.run(
                command,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                env=self.environment(),
                cwd="/",
                timeout=_INITDB_TIMEOUT_SECONDS,
                check=False,
                user=None if self.account is None else self.account.uid,
                group=None if self.account is None else self.account.gid,
                extra_groups=None if self.account is None else [],
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise EmbeddedServerError(f"could not run {command[0]}: {error}") from error
        if done.returncode != 0:
            raise EmbeddedServerError(f"{command[0]} failed ({done.returncode}):\n{done.stdout}")
        return done.stdout
