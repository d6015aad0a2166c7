"""A whole deployment for end-to-end tests: `lowtide up` as a child process on a folder of its own.

Here: its start, its api, its programs by name, faults done to them, and the proof that nothing of
it is left running. Not here: one job and its machines (`followed_job`).
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import create_engine, text

from app.adapters.embedded.processes.run_record import describe_running
from app.adapters.embedded.servers.postgres_server import EmbeddedPostgres
from app.adapters.embedded.servers.valkey_server import EmbeddedValkey
from tests.support.disks.small_disk import SmallDisk, small_disk
from tests.support.servers.postgres import fast_folder

LOWTIDE = str(Path(sys.executable).with_name("lowtide"))
SMALL_TRAINER = Path(__file__).with_name("small_trainer.py")
READY_SECONDS = 120.0
STOP_SECONDS = 60.0
_TAIL_LINES = 25
_POLL_SECONDS = 0.1

Document = dict[str, Any]


class ControlPlane:
    """One `lowtide up` that runs. Calls go over its real api with its first key."""

    def __init__(self, state_dir: Path, settings: dict[str, str], port: int) -> None:
        self.state_dir = state_dir
        self.output = state_dir.with_name("up.out")
        self._settings = settings
        self._port = port
        self.process = self._start()
        self.ready_seconds = 0.0
        self.job_ids: list[str] = []
        self.end_marks: list[Path] = []
        self.disks: Mapping[str, SmallDisk] = {}
        self._client: httpx.Client | None = None

    @property
    def url(self) -> str:
        """Where the api answers, once it has said so."""
        for line in self.output.read_text("utf-8", "replace").splitlines(keepends=True):
            if line.startswith("ready ") and line.endswith("\n"):
                return line.removeprefix("ready ").strip()
        return ""

    @property
    def api(self) -> httpx.Client:
        """The api with the first key; made at the first use."""
        if self._client is None:
            key = (self.state_dir / "admin.key").read_text("ascii").strip()
            self._client = httpx.Client(
                base_url=f"{self.url}/api/v1",
                headers={"Authorization": f"Bearer {key}"},
                timeout=60.0,
            )
        return self._client

    def get(self, path: str, **query: Any) -> Any:
        """The JSON document at a path of the api; fails the test for anything but 200."""
        answer = self.api.get(path, params=query)
        assert answer.status_code == 200, f"GET {path}: {answer.status_code} {answer.text}"
        return answer.json()

    def post(self, path: str, body: object = None) -> Any:
        """POST JSON; fails the test unless it is accepted."""
        answer = self.api.post(path, json={} if body is None else body)
        assert answer.is_success, f"POST {path}: {answer.status_code} {answer.text}"
        return answer.json()

    def upload(self, files: dict[str, str]) -> str:
        """Store a working folder with these files: its `sha256:…`."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            for name, content in sorted(files.items()):
                entry = tarfile.TarInfo(name)
                entry.size, entry.mode = len(content.encode()), 0o644
                archive.addfile(entry, io.BytesIO(content.encode()))
        digest = hashlib.sha256(packed.getvalue()).hexdigest()
        answer = self.api.put(f"/workdirs/sha256:{digest}", content=packed.getvalue())
        assert answer.is_success, f"upload: {answer.status_code} {answer.text}"
        return f"sha256:{digest}"

    def sql(self, statement: str, **values: object) -> list[Any]:
        """Rows of the deployment's own database, for what no page shows."""
        port = int((self.state_dir / "postgres_port").read_text("ascii"))
        engine = create_engine(EmbeddedPostgres(self.state_dir).url_at(port))
        try:
            with engine.connect() as connection:
                return list(connection.execute(text(statement), values).mappings())
        finally:
            engine.dispose()

    def valkey_url(self) -> str:
        """The redis:// URL of the deployment's Valkey."""
        port = int((self.state_dir / "valkey_port").read_text("ascii"))
        return EmbeddedValkey(self.state_dir).url_at(port)

    def verify(self) -> Document:
        """Every bill made again and compared with the ledger and the cloud's own bill."""
        found: Document = self.get("/costs/verify")
        return found

    def pids(self) -> dict[str, int]:
        """Live programs by name, as `lowtide status` tells."""
        return {one.name: one.pid for one in describe_running(self.state_dir) if one.alive}

    def restart_by_kill(self, program: str, seconds: float = 90.0) -> None:
        """SIGKILL one program and wait until another process has taken its place."""
        before = self.pids()[program]
        os.kill(before, signal.SIGKILL)
        self.wait(lambda: self.pids().get(program, before) != before, f"{program} again", seconds)

    def kill_supervisor(self) -> None:
        """SIGKILL `lowtide up` alone; what it started lives on."""
        self.process.kill()
        self.process.wait(10)

    def up_again(self, **settings: str) -> None:
        """`lowtide up` once more on the same folder and port; `await_ready` waits for it.

        settings: others than before, all of them; none: the very same.
        """
        self._settings = settings or self._settings
        self._port = self._port or int(self.url.rpartition(":")[2])
        self.close()
        self._client = None
        self.process = self._start()

    def await_ready(self) -> None:
        """Return once it says so; fails the test when it ends instead."""
        began = time.monotonic()
        self.wait(lambda: self.process.poll() is not None or self.url != "", "ready", READY_SECONDS)
        said = self.output.read_text("utf-8", "replace")
        assert self.process.poll() is None, f"`lowtide up` ended:\n{said}"
        self.ready_seconds = time.monotonic() - began

    def _start(self) -> subprocess.Popen[bytes]:
        words = ["up", "--state-dir", str(self.state_dir), "--port", str(self._port)]
        with self.output.open("wb") as file:
            return subprocess.Popen(
                [LOWTIDE, *words],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=clean_environment(**self._settings),
                start_new_session=True,
            )

    @contextmanager
    def stopped(self, *programs: str) -> Iterator[None]:
        """SIGSTOP these programs and whatever they started, SIGCONT at the end."""
        pids = self.pids()
        frozen = [pid for name in programs for pid in _with_children(pids[name])]
        try:
            for pid in frozen:
                os.kill(pid, signal.SIGSTOP)
            yield
        finally:
            for pid in frozen:
                _signal(pid, signal.SIGCONT)

    def wait(self, met: Callable[[], bool], what: str, seconds: float = 90.0) -> None:
        """Return once it holds; fails the test with the tails of the logs when it never does."""
        deadline = time.monotonic() + seconds
        while not met():
            assert time.monotonic() < deadline, f"not in {seconds:.0f} s: {what}\n{self.tails()}"
            time.sleep(_POLL_SECONDS)

    def tails(self) -> str:
        """The last lines of every log, for the message of a failed test."""
        parts = []
        logs = [
            *sorted((self.state_dir / "logs").glob("*.log")),
            self.state_dir / "cloud/cloud.log",
        ]
        for path in logs:
            if path.is_file():
                lines = path.read_text("utf-8", "replace").splitlines()[-_TAIL_LINES:]
                parts.append(f"--- {path.name}\n" + "\n".join(lines))
        return "\n".join(parts)

    def close(self) -> None:
        """Close the connection to the api."""
        if self._client is not None:
            self._client.close()


@contextmanager
def running_control_plane(
    settings: Mapping[str, str] | None = None,
    *,
    port: int = 0,
    disks: Mapping[str, int] | None = None,
) -> Iterator[ControlPlane]:
    """`lowtide up` on a new folder and a port, 0: a free one; at the end all of it must be gone.

    disks: megabytes of disks of their own for these parts of the state folder, "." for all of it.
    """
    with fast_folder() as folder, contextlib.ExitStack() as mounted:
        made = {
            name: mounted.enter_context(small_disk(folder / "state" / name, megabytes << 10))
            for name, megabytes in (disks or {}).items()
        }
        plane = ControlPlane(folder / "state", dict(settings or {}), port)
        plane.disks = made
        try:
            plane.await_ready()
            yield plane
        finally:
            plane.close()
            for disk in made.values():
                disk.empty()
            _stop(plane)
        left = left_running(folder)
        assert not left, f"left running: {left}"


def clean_environment(**settings: str) -> dict[str, str]:
    """The environment without any setting but these."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LOWTIDE_")}
    return {**kept, **settings}


def left_running(folder: Path) -> dict[int, str]:
    """Processes that name the folder in their command or environment: pid and command."""
    mark = os.fsencode(str(folder))
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            command = Path(f"/proc/{name}/cmdline").read_bytes()
            environment = Path(f"/proc/{name}/environ").read_bytes()
        except OSError:
            continue
        if mark in command or mark in environment:
            found[int(name)] = command.replace(b"\0", b" ").decode("utf-8", "replace")
    return found


def _stop(plane: ControlPlane) -> None:
    if plane.process.poll() is None:
        plane.process.send_signal(signal.SIGINT)
    try:
        plane.process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        plane.process.kill()
        plane.process.wait(10)
    if not left_running(plane.state_dir):
        return
    subprocess.run(
        [LOWTIDE, "down", "--state-dir", str(plane.state_dir)],
        capture_output=True,
        timeout=60,
        check=False,
        env=clean_environment(),
    )


def _with_children(pid: int) -> list[int]:
    """The process and everything below it."""
    found = [pid]
    for one in found:
        try:
            children = Path(f"/proc/{one}/task/{one}/children").read_text("ascii").split()
        except OSError:
            continue
        found += [int(child) for child in children]
    return found


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
