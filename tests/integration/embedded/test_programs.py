"""`lowtide up` for real: servers, schema, key, api, worker and beat, their deaths and their end."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis

from app.adapters.celery_wakeups import CeleryWakeups, Notifiable
from app.adapters.embedded.processes.run_record import describe_running, record_now, write_record
from app.adapters.embedded.processes.state_folder import open_state_folder
from app.adapters.providers.local.files.cloud_settings import LocalSettings, settle_terms
from app.adapters.system_entropy import SystemEntropy
from app.cli.client.local_run import look_at_run
from app.storage.session.migrate import head
from tests.support.servers.embedded import is_running, killed_at_the_end, open_folder, wait_until
from tests.support.servers.finished_commands import run_command
from tests.support.servers.memory_limit import memory_limit

LOWTIDE = str(Path(sys.executable).with_name("lowtide"))
READY_SECONDS = 120.0
PROGRAMS = {"lowtide", "postgres", "valkey", "api", "worker", "beat"}


def environment(**settings: str) -> dict[str, str]:
    """The environment without any setting but these."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LOWTIDE_")}
    return {**kept, **settings}


def lowtide(*words: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return run_command([LOWTIDE, *words], timeout=300, env=environment(**settings))


@dataclass
class Up:
    """A `lowtide up` that runs."""

    process: subprocess.Popen[bytes]
    state_dir: Path
    output: Path

    @property
    def lines(self) -> list[str]:
        """What it has printed."""
        return self.output.read_text("utf-8", "replace").splitlines()

    @property
    def url(self) -> str:
        """The address it has printed."""
        [ready] = [line for line in self.lines if line.startswith("ready ")]
        return ready.removeprefix("ready ")

    def status(self) -> dict[str, Any]:
        """`lowtide status --json`."""
        done = lowtide("status", "--json", "--state-dir", str(self.state_dir))
        document: dict[str, Any] = json.loads(done.stdout)
        return document

    def pids(self) -> dict[str, int]:
        """Live programs, read as `status` reads them: starting it takes most of a second."""
        return {one.name: one.pid for one in describe_running(self.state_dir) if one.alive}

    def get(self, path: str, key: str | None = None) -> tuple[int, bytes]:
        """GET from the api: status and body."""
        request = urllib.request.Request(f"{self.url}{path}")
        if key is not None:
            request.add_header("Authorization", f"Bearer {key}")
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read()
        except OSError:
            return 0, b""


@contextmanager
def running(state_dir: Path, **settings: str) -> Iterator[Up]:
    """`lowtide up` on a free port, ready; whatever is left at the end is stopped."""
    output = state_dir.with_name(f"{state_dir.name}.out")
    with output.open("wb") as file:
        process = subprocess.Popen(
            [LOWTIDE, "up", "--state-dir", str(state_dir), "--port", "0"],
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment(**settings),
            start_new_session=True,
        )
    up = Up(process, state_dir, output)
    try:
        wait_until(
            lambda: process.poll() is not None or any(x.startswith("ready ") for x in up.lines),
            "ready",
            READY_SECONDS,
        )
        assert process.poll() is None, "\n".join(up.lines)
        yield up
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        if process.wait(60) != 0:  # who ends well leaves nothing
            lowtide("down", "--state-dir", str(state_dir))


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder for the module's state."""
    with open_folder() as parent:
        yield parent


@pytest.fixture(scope="module")
def up(folder: Path) -> Iterator[Up]:
    """One deployment for the tests that leave it running."""
    with running(folder / "state", LOWTIDE_REQUEST_HEAD_SECONDS="2") as found:
        yield found


def test_it_says_ready_once_on_a_line_of_its_own_and_is(up: Up):
    assert up.lines.count(f"ready {up.url}") == sum("ready http" in line for line in up.lines) == 1
    # Before that, nothing but where to look and what to sign in with, and as whom jobs run.
    before = up.lines[: up.lines.index(f"ready {up.url}")]
    [link] = [line for line in before if "First admin" in line]
    assert f"within 72 hours: {up.url}/invitation#" in link
    token = link.partition("#")[2]
    assert not any(token in log.read_text("utf-8") for log in (up.state_dir / "logs").iterdir())
    shown = (line for line in before if "jobs" not in line and line != link)
    assert [line.partition(f" {up.state_dir}")[::2] for line in shown] == [
        ("lowtide  | starting; the programs log to", "/logs"),
        ("lowtide  | sign in with the key in", "/admin.key"),
        (f"lowtide  | other terminals reach it after: export LOWTIDE_STATE_DIR={up.state_dir}", ""),
    ]
    assert "is ready after" in (up.state_dir / "logs" / "lowtide.log").read_text("utf-8")
    assert [up.get(path)[0] for path in ("/readyz", "/healthz")] == [200, 200]


def test_its_api_closes_connections_that_do_not_say_what_they_want(up: Up):
    port = int(up.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(b"GET /healthz HT")
        assert connection.recv(65_536).startswith(b"HTTP/1.1 408 ")


def test_the_first_key_is_for_its_owner_only_and_opens_the_api(up: Up):
    path = up.state_dir / "admin.key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    key = path.read_text("ascii").strip()
    assert up.get("/api/v1/jobs", key)[0] == 200
    assert up.get("/api/v1/jobs", key[:-1] + "~")[0] == 0
    assert key not in "\n".join(up.lines)


def test_status_lists_the_programs_and_the_address(up: Up):
    report = up.status()
    assert {one["program"] for one in report["programs"]} == PROGRAMS
    assert {one["program"]: one["pid"] for one in report["programs"]} == up.pids()
    assert all(one["alive"] and one["uptime_seconds"] >= 0 for one in report["programs"])
    assert (report["address"], report["state_dir"]) == (up.url, str(up.state_dir))
    table = lowtide("status", LOWTIDE_STATE_DIR=str(up.state_dir))
    assert table.returncode == 0
    assert table.stdout.splitlines()[0].split() == ["PROGRAM", "PID", "ALIVE", "UPTIME"]
    assert up.url in table.stdout


def test_a_second_one_on_the_same_folder_is_refused(up: Up):
    done = lowtide("up", "--state-dir", str(up.state_dir), "--port", "0")
    assert done.returncode == 2
    assert f"stop it with `lowtide down --state-dir {up.state_dir}`" in done.stderr
    assert "Traceback" not in done.stderr
    assert up.get("/readyz")[0] == 200


def test_a_taken_port_is_refused_before_anything_starts(up: Up, folder: Path):
    port = up.url.rpartition(":")[2]
    done = lowtide("up", "--state-dir", str(folder / "never"), "--port", port)
    assert done.returncode == 2
    assert f"nothing can listen on 127.0.0.1:{port}" in done.stderr
    assert not (folder / "never").exists()


# Listens on argv[1] and says so; SIGTERM ends it.
LISTENING = """
import socket, sys, time
taken = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print(taken.getsockname()[1], flush=True)
time.sleep(600)
"""


@contextmanager
def listening(cwd: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process in a session of its own that holds a port, and the port."""
    process = subprocess.Popen(
        [sys.executable, "-c", LISTENING, "0", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        cwd=cwd,
        start_new_session=True,
    )
    with killed_at_the_end(process):
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()


def up_without_servers(
    state_dir: Path, port: str, **settings: str
) -> subprocess.CompletedProcess[str]:
    """`lowtide up` that ends at its database, which is after the port has been tried."""
    dead = {"LOWTIDE_DATABASE_URL": "postgresql://h@127.0.0.1:1/x"}
    urls = {**dead, "LOWTIDE_REDIS_URL": "redis://127.0.0.1:1/0"}
    return lowtide("up", "--state-dir", str(state_dir), "--port", port, **urls, **settings)


def test_what_an_earlier_run_left_is_stopped_before_the_port_is_tried(folder: Path):
    state_dir = open_state_folder(folder / "left")
    with listening(state_dir) as (process, port):
        recorded = record_now("api", process.pid, stop_signal=15, stop_timeout_seconds=5.0, stage=1)
        write_record(state_dir, [replace(recorded, name="lowtide", start_token=""), recorded])
        done = up_without_servers(state_dir, port)
        assert "stopped what an earlier run left behind: api" in done.stdout
        assert "the database cannot be prepared" in done.stderr, done
        assert process.wait(10) == -signal.SIGTERM


def test_a_program_that_nobody_wrote_down_is_stopped_too(folder: Path):
    """Its supervisor was killed just after its start, or could not write on a full disk."""
    state_dir = open_state_folder(folder / "unwritten")
    with (
        listening(state_dir, "-m", "uvicorn", "app.api.main:app") as (process, port),
        listening(state_dir, "uvicorn", "another:app") as (stranger, taken),
    ):
        done = up_without_servers(state_dir, port)
        assert "stopped what an earlier run left behind: api" in done.stdout
        assert "the database cannot be prepared" in done.stderr, done
        assert process.wait(10) == -signal.SIGTERM
        refused = up_without_servers(state_dir, taken)
        assert (refused.returncode, stranger.poll()) == (2, None)
        assert f"nothing can listen on 127.0.0.1:{taken}" in refused.stderr
        assert "Traceback" not in refused.stdout + refused.stderr


def test_up_and_down_say_what_they_mended_of_the_local_cloud(folder: Path):
    state_dir = open_state_folder(folder / "torn")
    cloud = state_dir / "cloud"
    for command in ("down", "up"):
        cloud.mkdir(exist_ok=True)
        settle_terms(cloud, LocalSettings(), 1_000_000)
        (cloud / "cloud.jsonl").write_text('{"machines": [{"mach\n{"machines": []}\n')
        done = (
            lowtide("down", "--state-dir", str(state_dir))
            if command == "down"
            else up_without_servers(state_dir, "0")
        )
        assert "line 1 of cloud.jsonl (20 bytes) was torn" in done.stdout + done.stderr, done
        assert "Traceback" not in done.stderr
    (cloud / "terms.json").write_text('{"epoch')
    beyond = lowtide("down", "--state-dir", str(state_dir))
    assert beyond.returncode == 3
    assert "terms.json is damaged" in beyond.stderr
    assert "Traceback" not in beyond.stderr


def test_prices_of_the_local_cloud_come_in_by_themselves(up: Up):
    key = (up.state_dir / "admin.key").read_text("ascii").strip()
    wait_until(lambda: b"us-west-2a" in up.get("/api/v1/offers", key)[1], "offers are listed")


# In every run each is killed in test_every_server_is_killed_in_turn of tests/e2e, and below the
# others keep their processes when Valkey ends.
@pytest.mark.full
@pytest.mark.parametrize("program", ["api", "worker", "beat", "postgres"])
def test_a_killed_program_comes_back(up: Up, program: str):
    before = up.pids()
    os.kill(before[program], signal.SIGKILL)
    wait_until(lambda: up.pids().get(program, before[program]) != before[program], program)
    wait_until(lambda: up.get("/readyz")[0] == 200, "the api is ready")
    after = up.pids()
    others = PROGRAMS - {program}
    assert {name: after[name] for name in others} == {name: before[name] for name in others}


def test_rings_are_taken_again_after_valkey_was_killed(up: Up):
    pids = up.pids()
    os.kill(pids["valkey"], signal.SIGKILL)
    wait_until(lambda: up.pids().get("valkey", pids["valkey"]) != pids["valkey"], "valkey")
    password = (up.state_dir / "valkey_password").read_text("ascii").strip()
    port = (up.state_dir / "valkey_port").read_text("ascii").strip()
    url = f"redis://:{password}@127.0.0.1:{port}/0"
    wakeups = CeleryWakeups(url, {"claim_jobs": Notifiable("quick", 60.0)}, SystemEntropy())
    with redis.Redis.from_url(url) as client:
        wait_until(lambda: _answers(client), "valkey answers")  # a ring before that is dropped

        def has_sent(count: int) -> bool:
            return wakeups.sent_count == count

        for number in range(1, 4):
            wakeups.notify(["claim_jobs"])
            wait_until(partial(has_sent, number), "the ring is sent")
            wait_until(lambda: client.llen("quick") == 0, "the worker takes it")
    wakeups.close()
    after = up.pids()
    assert {name: after[name] for name in PROGRAMS - {"valkey"}} == {
        name: pids[name] for name in PROGRAMS - {"valkey"}
    }


def _answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.RedisError:
        return False


def test_down_stops_everything(up: Up):
    """The last test of the deployment that the ones before have left running."""
    state_dir, pids = up.state_dir, up.pids()
    done = lowtide("down", "--state-dir", str(state_dir))
    assert (done.returncode, done.stderr) == (0, "")
    assert all(name in done.stdout for name in PROGRAMS)
    assert up.process.wait(60) == 0
    assert [name for name, pid in pids.items() if is_running(pid)] == []
    nothing = lowtide("status", "--state-dir", str(state_dir))
    assert nothing.returncode == 3
    assert nothing.stdout.startswith(f"Nothing runs from {state_dir}.")


# What an `up` prepares the second time: test_first_use.py in tests/integration/postgres, and
# test_migrate_prepares_a_database_and_says_what_it_did here.
@pytest.mark.full
def test_the_next_up_goes_on_with_the_same_key(up: Up):
    state_dir = up.state_dir
    key = (state_dir / "admin.key").read_text("ascii")
    lowtide("down", "--state-dir", str(state_dir))  # nothing, where the test before has done so
    assert up.process.wait(60) == 0
    with running(state_dir) as second:
        assert second.get("/api/v1/jobs", key.strip())[0] == 200
        assert (state_dir / "admin.key").read_text("ascii") == key
        log = (state_dir / "logs" / "lowtide.log").read_text("utf-8")
        assert f"The database is at revision {head()} already." in log
        second.process.send_signal(signal.SIGINT)
        assert second.process.wait(60) == 0


# An `up` clears the same: test_what_an_earlier_run_left_is_stopped_before_the_port_is_tried; and
# test_stop_running_cleans_up_after_a_killed_supervisor (test_process_supervisor.py) is `down`.
@pytest.mark.full
def test_down_clears_what_a_killed_up_left_behind(folder: Path):
    state_dir = folder / "killed"
    with running(state_dir) as found:
        lock = state_dir / "cloud" / "cloud.lock"
        wait_until(lambda: lock.exists() and lock.read_text("ascii") != "", "the cloud runs")
        pids = found.pids()
        cloud = int(lock.read_text("ascii"))
        os.kill(found.process.pid, signal.SIGKILL)
        found.process.wait(60)
        assert f"the api at {found.url} still answers" in look_at_run(state_dir).sentence
        done = lowtide("down", "--json", "--state-dir", str(state_dir))
        assert done.returncode == 0, done.stderr
        assert set(json.loads(done.stdout)["stopped"]) == PROGRAMS - {"lowtide"}
        assert [name for name, pid in pids.items() if is_running(pid)] == []
        assert not is_running(cloud)
    again = lowtide("down", "--state-dir", str(state_dir))
    assert (again.returncode, again.stdout.split(".")[0]) == (0, f"Nothing runs from {state_dir}")


@pytest.mark.full
def test_an_api_and_then_an_up_that_the_oom_killer_kills_start_again(folder: Path):
    with memory_limit(f"lowtide-test-{os.getpid()}") as limit, running(folder / "oom") as found:
        key = (found.state_dir / "admin.key").read_text("ascii").strip()
        before = found.pids()
        limit.kill(before["api"])
        wait_until(lambda: found.pids().get("api", before["api"]) != before["api"], "the api")
        wait_until(lambda: found.get("/readyz")[0] == 200, "the api is ready")
        after = found.pids()
        assert {**after, "api": before["api"]} == before
        limit.kill(found.process.pid)
        assert found.process.wait(60) == -signal.SIGKILL
        with running(found.state_dir) as second:
            assert second.get("/api/v1/jobs", key)[0] == 200
            assert any("stopped what an earlier run left behind" in x for x in second.lines)
            assert [name for name, pid in after.items() if is_running(pid)] == []
            assert set(second.pids()) == PROGRAMS


@pytest.mark.full
def test_servers_that_the_settings_name_are_used(
    empty_database_url: str, valkey_url: str, folder: Path
):
    urls = {"LOWTIDE_DATABASE_URL": empty_database_url, "LOWTIDE_REDIS_URL": valkey_url}
    with running(folder / "given", **urls) as found:
        assert set(found.pids()) == {"lowtide", "api", "worker", "beat"}
        key = (found.state_dir / "admin.key").read_text("ascii").strip()
        assert found.get("/api/v1/jobs", key)[0] == 200


def test_migrate_prepares_a_database_and_says_what_it_did(empty_database_url: str, folder: Path):
    state_dir = folder / "migrated"
    settings = {"LOWTIDE_DATABASE_URL": empty_database_url, "LOWTIDE_STATE_DIR": str(state_dir)}
    first = lowtide("migrate", "--json", **settings)
    assert first.returncode == 0, first.stderr
    key_path = str(state_dir / "admin.key")
    told = json.loads(first.stdout)
    assert told.pop("first_admin_path").startswith("/invitation#")
    assert told == {"before": None, "after": head(), "key_path": key_path}
    assert stat.S_IMODE(Path(key_path).stat().st_mode) == 0o600
    second = lowtide("migrate", **settings)
    assert second.stdout == f"The database is at revision {head()} already.\n"


def test_a_database_that_does_not_answer_is_told_in_a_sentence(folder: Path):
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = f"postgresql://ada:hidden@127.0.0.1:{nobody.getsockname()[1]}/x"
        settings = {"LOWTIDE_DATABASE_URL": url, "LOWTIDE_STATE_DIR": str(folder / "none")}
        done = lowtide("migrate", **settings)
    assert done.returncode == 3
    assert "the database could not be migrated" in done.stderr
    assert "hidden" not in done.stderr
    assert "Traceback" not in done.stderr


def test_migrate_without_any_database_says_what_to_do(folder: Path):
    done = lowtide("migrate", "--state-dir", str(folder / "nowhere"))
    assert done.returncode == 2
    assert "lowtide up" in done.stderr
    assert not (folder / "nowhere").exists()


@pytest.mark.parametrize("program", ["worker", pytest.param("beat", marks=pytest.mark.full)])
def test_a_program_without_its_settings_says_which(program: str):
    done = run_command(
        [sys.executable, "-m", "workers.entrypoints", program], timeout=300, env=environment()
    )
    assert done.returncode == 2
    assert done.stderr.startswith("LOWTIDE_REDIS_URL is not set")


def test_a_worker_without_its_hands_does_not_run():
    urls = {"LOWTIDE_REDIS_URL": "redis://127.0.0.1:1/0", "LOWTIDE_DATABASE_URL": "postgresql://h"}
    for more, said in (
        (
            {"LOWTIDE_OBJECT_STORE_URI": "az://bucket"},
            "must begin with file:// or s3:// or gs://",
        ),
        (
            {"LOWTIDE_PROVIDERS": "aws", "LOWTIDE_PUBLIC_URL": "https://lowtide.example"},
            "aws is off: set LOWTIDE_AWS_REGIONS",
        ),
    ):
        done = run_command(
            [sys.executable, "-m", "workers.entrypoints", "worker"],
            timeout=300,
            env=environment(**urls, **more),
        )
        assert done.returncode == 2
        assert said in done.stderr


def test_up_refuses_clouds_that_it_cannot_use(folder: Path):
    words = ("up", "--state-dir", str(folder / "clouds"), "--port", "0")
    plain = lowtide(*words, LOWTIDE_PROVIDERS="gcp")
    assert plain.returncode == 2
    assert "LOWTIDE_PUBLIC_URL" in plain.stderr
    https = {"LOWTIDE_PUBLIC_URL": "https://lowtide.example"}
    assert "LOWTIDE_GCP_PROJECT" in lowtide(*words, LOWTIDE_PROVIDERS="gcp", **https).stderr
    assert "LOWTIDE_AWS_REGIONS" in lowtide(*words, LOWTIDE_PROVIDERS="aws", **https).stderr
    assert not (folder / "clouds").exists()
