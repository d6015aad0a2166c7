"""What benchmarks run in: a folder, servers of their own, a `lowtide up`; all opened on first use.

Not here: what is measured.
"""

from __future__ import annotations

import itertools
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

import psycopg
from sqlalchemy import make_url

from app.adapters.embedded.servers.postgres_server import EmbeddedPostgres
from app.adapters.embedded.servers.valkey_server import EmbeddedValkey
from app.storage.session.migrate import upgrade
from tests.bench.live_system import LiveSystem, up
from tests.bench.process_cost import family_cpu_seconds
from tests.support.servers.embedded import open_folder
from tests.support.servers.postgres import fast_folder

ROOT = Path(__file__).parents[2]
API_APP = "app.api.main:app"
_ANSWERS_SECONDS = 30.0
_STOP_SECONDS = 20.0


class OwnPostgres:
    """The product's embedded PostgreSQL with the product's settings, databases made at will.

    Its data lies in memory where there is room: a disk's flush would hide what the code costs.
    """

    def __init__(self, state_dir: Path, *, fsync: bool = True) -> None:
        self._server = EmbeddedPostgres(state_dir, fsync=fsync)
        self._numbers = itertools.count(1)
        self._server.start()
        upgrade(self.create("template0", "bench_template"))

    def stop(self) -> None:
        """Stop it."""
        self._server.stop()

    def clone(self) -> str:
        """The SQLAlchemy URL of a new database with the newest schema."""
        return self.create("bench_template", f"bench_{next(self._numbers)}")

    def create(self, template: str, name: str) -> str:
        """The SQLAlchemy URL of a new database."""
        with psycopg.connect(driver_url(self._server.url), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return make_url(self._server.url).set(database=name).render_as_string(False)

    def cpu_seconds(self) -> float:
        """Processor seconds of the server and all its children so far."""
        identity = self._server.live_identity()
        if identity is None:
            raise RuntimeError("PostgreSQL has ended")
        return family_cpu_seconds(identity.pid)


class BenchEnvironment:
    """Context manager. quick: measure less. say: one line of progress."""

    def __init__(self, quick: bool, say: Callable[[str], None]) -> None:
        self.quick = quick
        self.say = say
        self._stack = ExitStack()
        self._folder: Path | None = None
        self._postgres: OwnPostgres | None = None
        self._valkey_url: str | None = None
        self._live: LiveSystem | None = None
        self._live_folder: Path | None = None
        self._names = itertools.count(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def folder(self) -> Path:
        """A folder in memory where there is room, removed at the end."""
        if self._folder is None:
            self._folder = self._stack.enter_context(fast_folder())
        return self._folder

    def new_folder(self, purpose: str) -> Path:
        """An empty folder below it."""
        found = self.folder / f"{purpose}-{next(self._names)}"
        found.mkdir(mode=0o755)
        return found

    @property
    def postgres(self) -> OwnPostgres:
        """The PostgreSQL of this run."""
        if self._postgres is None:
            self.say("starting PostgreSQL")
            self._postgres = OwnPostgres(self.new_folder("postgres"))
            self._stack.callback(self._postgres.stop)
        return self._postgres

    @property
    def valkey_url(self) -> str:
        """The URL of the Valkey of this run."""
        if self._valkey_url is None:
            self.say("starting Valkey")
            server = EmbeddedValkey(self.new_folder("valkey"))
            self._valkey_url = server.start()
            self._stack.callback(server.stop)
        return self._valkey_url

    @property
    def live_folder(self) -> Path:
        """The state folder of `lowtide up`, on the disk, empty at first."""
        if self._live_folder is None:
            self._live_folder = self._stack.enter_context(open_folder())
        return self._live_folder

    @property
    def live(self) -> LiveSystem:
        """A `lowtide up` with its own settings, kept up to the end of the run."""
        if self._live is None:
            self.say("starting `lowtide up`")
            self._live = self._stack.enter_context(up(self.live_folder))
        return self._live


class ServedProgram:
    """A web application under uvicorn, in a process of its own. pid, port: once it answers."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self._process = process
        self.pid = process.pid
        self.port = port

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def serve(
    application: str, folder: Path, probe: str, settings: dict[str, str]
) -> Iterator[ServedProgram]:
    """Run an application as `lowtide up` runs the api; `probe` is a path that answers 200."""
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", application, "--host", "127.0.0.1"]
    http = (
        "app.api.serving.connection_limits:LimitedHttp" if application == API_APP else "httptools"
    )
    command += ["--port", str(port), "--loop", "uvloop", "--http", http]
    command += ["--log-level", "warning", "--no-access-log", "--no-server-header"]
    command += ["--no-proxy-headers", "--timeout-graceful-shutdown", "3"]
    log = folder / f"{application.replace(':', '.')}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**plain_environment(), **settings},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        _wait_until_it_answers(process, f"http://127.0.0.1:{port}{probe}")
        yield ServedProgram(process, port)
    except Exception as error:
        error.add_note(f"the end of {log.name}:\n{log.read_text('utf-8', 'replace')[-2000:]}")
        raise
    finally:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(_STOP_SECONDS)


def api_settings(database_url: str, redis_url: str, state_dir: Path) -> dict[str, str]:
    """The environment of an api on its own."""
    return {
        "LOWTIDE_STATE_DIR": str(state_dir),
        "LOWTIDE_DATABASE_URL": database_url,
        "LOWTIDE_REDIS_URL": redis_url,
    }


def plain_environment() -> dict[str, str]:
    """This environment without Lowtide's settings: a benchmark means the same everywhere."""
    return {name: value for name, value in os.environ.items() if not name.startswith("LOWTIDE_")}


def driver_url(url: str) -> str:
    """A SQLAlchemy URL as PostgreSQL's own drivers take it."""
    return url.replace("postgresql+psycopg://", "postgresql://", 1)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_until_it_answers(process: subprocess.Popen[bytes], url: str) -> None:
    deadline = time.monotonic() + _ANSWERS_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except (OSError, urllib.error.URLError):
            time.sleep(0.05)
    raise RuntimeError(f"{url} does not answer")
