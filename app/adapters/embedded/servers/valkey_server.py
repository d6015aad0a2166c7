"""An embedded Valkey: its configuration file, and how to know that it is ours and well.

It carries rings and queues, never truth, so it saves nothing. Not here: starting, adopting and
stopping (see `embedded_server`).
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import ClassVar

from app.adapters.embedded.processes import process_identity
from app.adapters.embedded.processes.process_identity import ProcessIdentity
from app.adapters.embedded.processes.state_folder import kept_secret, write_atomically
from app.adapters.embedded.servers.embedded_server import EmbeddedServer

_PROBE_TIMEOUT_SECONDS = 1.0
_PROBE_REPLY = b"+OK\r\n+PONG\r\n"
_MAX_MEMORY = "256mb"


class EmbeddedValkey(EmbeddedServer):
    """Valkey with a password and no files but its configuration and its pid."""

    name: ClassVar[str] = "valkey"

    def url_at(self, port: int) -> str:
        """The redis:// URL of database 0."""
        return f"redis://:{self._password()}@127.0.0.1:{port}/0"

    def accepts_connections(self, port: int) -> bool:
        """True when the server takes our password and answers PING (RESP inline commands)."""
        try:
            with socket.create_connection(("127.0.0.1", port), _PROBE_TIMEOUT_SECONDS) as probe:
                probe.sendall(f"AUTH {self._password()}\r\nPING\r\n".encode("ascii"))
                reply = b""
                while len(reply) < len(_PROBE_REPLY):
                    part = probe.recv(256)
                    if not part:
                        return False
                    reply += part
        except OSError:
            return False
        return reply == _PROBE_REPLY

    def live_identity(self) -> ProcessIdentity | None:
        """The process in the pid file, if it is a Valkey started with our configuration file."""
        pid = self._pid()
        if not process_identity.command_mentions(pid, "valkey-server", str(self._config_path)):
            return None
        return process_identity.identify(pid)

    def live_port(self) -> int:
        """The port in the configuration file, which only a start of ours rewrites."""
        lines = self._config_path.read_text("ascii").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("port "))

    def command_at(self, port: int) -> list[str]:
        """Write the configuration for `port` and give the command."""
        for folder in (self._folder, self._data_dir):
            if not folder.exists():
                folder.mkdir(mode=0o711)
                folder.chmod(0o711)
        config = self._config(port)
        # A restart on a full disk can do without writing what is there.
        if not (self._config_path.exists() and self._config_path.read_text("ascii") == config):
            write_atomically(self._config_path, config)
        if self.account is not None:
            os.chown(self._data_dir, self.account.uid, self.account.gid)
            os.chown(self._config_path, self.account.uid, self.account.gid)
        return [str(self.server_binaries.valkey), str(self._config_path)]

    @property
    def _folder(self) -> Path:
        return self.home / "valkey"

    @property
    def _data_dir(self) -> Path:
        return self._folder / "run"

    @property
    def _config_path(self) -> Path:
        return self._folder / "valkey.conf"

    @property
    def _pid_path(self) -> Path:
        return self._data_dir / "valkey.pid"

    def _password(self) -> str:
        return kept_secret(self.state_dir / "valkey_password")

    def _pid(self) -> int:
        try:
            return int(self._pid_path.read_text("ascii"))
        except (FileNotFoundError, ValueError):
            return 0

    def _config(self, port: int) -> str:
        lines = [
            "bind 127.0.0.1",
            f"port {port}",
            "protected-mode yes",
            f"requirepass {self._password()}",
            'save ""',
            "appendonly no",
            f'dir "{self._data_dir}"',
            f'pidfile "{self._pid_path}"',
            f"maxmemory {_MAX_MEMORY}",
            "maxmemory-policy noeviction",
            "daemonize no",
            "loglevel warning",
            # The title would hide the path by which we know the process again.
            "set-proc-title no",
        ]
        return "\n".join(lines) + "\n"
