"""What the two embedded servers share: start, adopt, stop, remember a port, offer a process spec.

Not here: anything about PostgreSQL or Valkey in particular, and restarts after a crash (the
supervisor does those).
"""

from __future__ import annotations

import contextlib
import functools
import re
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

from app.adapters.embedded.embedded_errors import EmbeddedServerError
from app.adapters.embedded.processes import log_files, state_folder
from app.adapters.embedded.processes.process_identity import ProcessIdentity
from app.adapters.embedded.processes.process_launch import launch
from app.adapters.embedded.processes.process_spec import ProcessSpec
from app.adapters.embedded.processes.process_stopping import StopTarget, stop_processes
from app.adapters.embedded.processes.server_account import (
    ServerAccount,
    server_account,
    server_home,
)
from app.adapters.embedded.servers import binaries
from app.domain.units.durations import measured_duration

_READY_POLL_SECONDS = 0.02
_LAUNCH_ATTEMPTS = 3
_REAP_TIMEOUT_SECONDS = 1.0


class EmbeddedServer(ABC):
    """One server on 127.0.0.1 with its data, port and password kept for one state folder.

    Use it alone (`start`, `stop`), where a server left running by a killed process is adopted, or
    under a supervisor (`process_spec`), where such a server is replaced by a supervised one.
    """

    name: ClassVar[str]
    stop_signal: ClassVar[int] = signal.SIGTERM
    unechoed: ClassVar[re.Pattern[bytes] | None] = None
    """Entries of its log that are not for the terminal of a supervisor."""

    def __init__(
        self,
        state_dir: Path,
        *,
        start_timeout_seconds: float = 30.0,
        stop_timeout_seconds: float = 20.0,
        system_dir: Path | None = None,
    ) -> None:
        """`system_dir` replaces /var/lib/lowtide for what root must keep out of shut folders."""
        self.state_dir = state_folder.open_state_folder(state_dir)
        self._start_timeout_seconds = start_timeout_seconds
        self._stop_timeout_seconds = stop_timeout_seconds
        self._system_dir = system_dir
        self._child: subprocess.Popen[bytes] | None = None
        self._given_port: int | None = None
        self._chosen_port = 0

    # ---- for each server to say -------------------------------------------------------------

    @abstractmethod
    def url_at(self, port: int) -> str:
        """The URL, password included, when the server listens on `port`."""

    @abstractmethod
    def accepts_connections(self, port: int) -> bool:
        """True when the server on `port` answers to our password."""

    @abstractmethod
    def live_identity(self) -> ProcessIdentity | None:
        """The running server of this state folder, whoever started it; None when there is none."""

    @abstractmethod
    def live_port(self) -> int:
        """The port of the running server."""

    @abstractmethod
    def command_at(self, port: int) -> list[str]:
        """Prepare the data folder and files for `port` and return the command of the server."""

    # ---- used by everyone -------------------------------------------------------------------

    @property
    def url(self) -> str:
        """The URL of the server; EmbeddedServerError before its first start."""
        if self._given_port is None:
            raise EmbeddedServerError(f"{self.name} has not been started, so it has no URL yet")
        return self.url_at(self._given_port)

    def is_running(self) -> bool:
        """True while the server of this state folder runs, whoever started it."""
        return self.live_identity() is not None

    def start(self) -> str:
        """Start the server, or adopt the one that runs already, and return its URL once it answers.

        Raises EmbeddedServerError, with the end of its log, when it does not come up in time.
        """
        with state_folder.brief_lock(self.state_dir, self.name, self._start_timeout_seconds):
            for attempt in range(1, _LAUNCH_ATTEMPTS + 1):
                self._given_port = self.live_port() if self.is_running() else self._launch()
                if self._answers_in_time(self._given_port):
                    return self.url
                # It may have lost its port to someone else between our look and its own.
                if self._child is not None or self.is_running() or attempt == _LAUNCH_ATTEMPTS:
                    break
            if self._child is not None:
                self._child.send_signal(self.stop_signal)
                self._reap()
        raise EmbeddedServerError(
            f"{self.name} did not answer on 127.0.0.1:{self._given_port} within "
            f"{measured_duration(self._start_timeout_seconds)}; the end of {self._log_path}:\n"
            + log_files.last_lines(self._log_path)
        )

    def stop(self) -> None:
        """Stop the server of this state folder, whoever started it; nothing when none runs."""
        with state_folder.brief_lock(self.state_dir, self.name, self._stop_timeout_seconds):
            self._stop_live()

    def process_spec(self) -> ProcessSpec:
        """How a supervisor runs this server; `url` is known once it has been ready."""
        return ProcessSpec(
            name=self.name,
            argv=self._supervised_command,
            env=self.environment(),
            ready=self._supervised_ready,
            restart=True,
            unechoed=self.unechoed,
            stop_signal=self.stop_signal,
            stop_timeout_seconds=self._stop_timeout_seconds,
            ready_timeout_seconds=self._start_timeout_seconds,
            account=self.account,
            cwd=Path("/"),
        )

    # ---- for the servers' own modules -------------------------------------------------------

    @functools.cached_property
    def account(self) -> ServerAccount | None:
        """Whom the server runs as; None for our own account."""
        return server_account()

    @functools.cached_property
    def home(self) -> Path:
        """The folder for the data of both servers; the state folder itself where possible."""
        return server_home(self.state_dir, self.account, self._system_dir)

    @functools.cached_property
    def server_binaries(self) -> binaries.ServerBinaries:
        """Binaries that `account` can run."""
        installed = binaries.installed_binaries()
        return binaries.reachable_binaries(installed, self.account, self._system_dir)

    def environment(self) -> dict[str, str]:
        """A bare environment: nothing of ours (secrets, locale, PG* variables) leaks in."""
        return {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}

    # ---- inside ------------------------------------------------------------------------------

    @property
    def _log_path(self) -> Path:
        return log_files.log_path(self.state_dir, self.name)

    @property
    def _port_path(self) -> Path:
        return self.state_dir / f"{self.name}_port"

    def _launch(self) -> int:
        self._reap()
        port = state_folder.kept_port(self._port_path)
        log_files.roll_over(self._log_path)
        spec = ProcessSpec(
            self.name,
            self.command_at(port),
            env=self.environment(),
            account=self.account,
            cwd=Path("/"),
        )
        with self._log_path.open("ab") as log:
            self._child = launch(spec, log)
        return port

    def _answers_in_time(self, port: int) -> bool:
        deadline = time.monotonic() + self._start_timeout_seconds
        while time.monotonic() < deadline:
            if self.accepts_connections(port):
                return True
            if self._child is not None and self._child.poll() is not None:
                self._child = None
            if self._child is None and not self.is_running():
                return False
            time.sleep(_READY_POLL_SECONDS)
        return False

    def _stop_live(self) -> None:
        identity = self.live_identity()
        if identity is not None:
            target = StopTarget(self.name, identity, self.stop_signal, self._stop_timeout_seconds)
            stop_processes([target])
            if identity.is_alive():
                raise EmbeddedServerError(
                    f"{self.name} (pid {identity.pid}) is still there after SIGKILL; wait until "
                    "the disk that it waits for answers, or restart this machine, then run "
                    "`lowtide down` again"
                )
        elif self._child is not None:
            # Just started: it has not written down yet who it is.
            self._child.kill()
        self._reap()

    def _reap(self) -> None:
        """Take the exit status of a server of ours that has ended, so that no zombie stays."""
        if self._child is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(timeout=_REAP_TIMEOUT_SECONDS)
            self._child = None

    def _supervised_command(self) -> list[str]:
        self._stop_live()
        # Once the URL is out the port must stay, even if that means waiting for it to be free.
        port = self._given_port or state_folder.kept_port(self._port_path)
        self._chosen_port = port
        return self.command_at(port)

    def _supervised_ready(self) -> bool:
        if not self.accepts_connections(self._chosen_port):
            return False
        self._given_port = self._chosen_port
        return True
