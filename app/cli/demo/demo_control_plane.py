"""The control plane of the demo: `lowtide up` as a child process, started and stopped.

Not here: what the demo does with it (`demo`).
"""

from __future__ import annotations

import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from app.cli.client.failures import UNREACHABLE, CommandFailed

_READY_SECONDS: Final = 90.0
_STOP_SECONDS: Final = 60.0
_READY: Final = "ready "
_PROGRAM: Final = "from app.cli.main import main; main()"


class DemoControlPlane:
    """Context manager: up on entry, everything stopped on exit. `url` is where it answers."""

    def __init__(self, state_dir: Path, port: int, settings: Mapping[str, str]) -> None:
        self._state_dir = state_dir
        self._port = port
        self._settings = settings
        self._process: subprocess.Popen[str] | None = None
        self.log = state_dir / "demo-up.log"
        self.url = ""

    def __enter__(self) -> Self:
        # Loaded here: other commands start quicker without it.
        from app.adapters.embedded.processes.state_folder import open_state_folder

        open_state_folder(self._state_dir)
        command = [sys.executable, "-c", _PROGRAM, "up"]
        command += ["--state-dir", str(self._state_dir), "--port", str(self._port)]
        self._process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **self._settings},
            start_new_session=True,
        )
        try:
            self._wait_until_ready(self._process)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Ask it to stop everything, and wait; what will not stop is killed."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGINT)
        try:
            process.wait(timeout=_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(timeout=10)

    def _wait_until_ready(self, process: subprocess.Popen[str]) -> None:
        """Wait for the line that says where it answers; every line goes to the log."""
        lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(
            target=self._copy_lines, args=(process, lines), name="demo-log", daemon=True
        ).start()
        deadline = time.monotonic() + _READY_SECONDS
        seen: list[str] = []
        while (left := deadline - time.monotonic()) > 0:
            try:
                line = lines.get(timeout=left)
            except queue.Empty:
                break
            if line is None:
                break
            seen.append(line)
            if line.startswith(_READY):
                self.url = line.removeprefix(_READY).strip()
                return
        tail = [line.rstrip() for line in seen[-15:]]
        raise CommandFailed("the control plane did not start:", UNREACHABLE, details=tail)

    def _copy_lines(
        self, process: subprocess.Popen[str], lines: queue.SimpleQueue[str | None]
    ) -> None:
        """Empty the pipe for as long as the process lives, into a log that people can read."""
        with self.log.open("w") as log:
            for line in process.stdout or ():
                log.write(line)
                log.flush()
                lines.put(line)
        lines.put(None)


def free_port(preferred: int) -> int:
    """The preferred port, or another one when it is taken."""
    for port in (preferred, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise CommandFailed("no port is free on 127.0.0.1")
