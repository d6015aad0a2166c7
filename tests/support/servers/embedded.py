"""Folders and processes for tests of the embedded servers and the supervisor.

Not here: the tests, and the database of other tests.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

_POLL_SECONDS = 0.02


@contextlib.contextmanager
def open_folder() -> Iterator[Path]:
    """A temporary folder that every account may enter (pytest's own are shut to others)."""
    folder = Path(tempfile.mkdtemp(prefix="lowtide-test-"))
    folder.chmod(0o711)
    try:
        yield folder.resolve()
    finally:
        shutil.rmtree(folder)


def expected_server_uid() -> int:
    """Whom embedded servers must run as here: never root."""
    return pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else os.geteuid()


def wait_until(condition: Callable[[], bool], what: str, timeout_seconds: float = 60.0) -> None:
    """Return once `condition()` holds; AssertionError naming `what` when it never does."""
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(_POLL_SECONDS)


def is_running(pid: int) -> bool:
    """True while `pid` is a process that has not ended (a zombie has)."""
    found = subprocess.run(
        ["ps", "-o", "state=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return found.stdout.strip()[:1] not in {"", "Z", "X"}


@contextlib.contextmanager
def python_process(code: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run `code` in another Python, its stdout readable; killed at the end if it still runs."""
    project = Path(__file__).parents[3]
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(project)},
        start_new_session=True,
    )
    with killed_at_the_end(process):
        yield process


@contextlib.contextmanager
def sleeping_stranger() -> Iterator[subprocess.Popen[str]]:
    """A process of the servers' account that has nothing to do with any of them."""
    account = expected_server_uid() if os.geteuid() == 0 else None
    process = subprocess.Popen(["sleep", "600"], text=True, cwd="/", user=account)
    with killed_at_the_end(process):
        yield process


@contextlib.contextmanager
def killed_at_the_end(process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> Iterator[None]:
    """Kill and reap `process` on leaving, whatever happened."""
    with process:
        try:
            yield
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
