"""Talking to the local cloud, and starting its daemon when there is none.

Here: the control socket's client side. Not here: the meaning of the answers (`provider`,
`price_source`), and the end of a cloud (`cloud_stop`).
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from app.adapters.disk_space import full_sentence
from app.adapters.providers.local.files.cloud_folder import (
    DAEMON,
    LOG_FILE,
    prepare_folder,
    read_address,
)
from app.adapters.providers.local.files.cloud_settings import LocalSettings
from app.adapters.providers.local.files.durable_files import owner_only
from app.ports.cloud_provider import LaunchOutcomeUnknown, ProviderError, RefusalKind

_CONNECT_PAUSE_SECONDS = 0.02
_START_AGAIN_SECONDS = 1.0
_PROJECT_ROOT = Path(__file__).parents[4]


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout_seconds: float) -> None:
        super().__init__("localhost", timeout=timeout_seconds)
        self._path = path

    def connect(self) -> None:
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        link.settimeout(self.timeout)
        try:
            link.connect(self._path)
        except OSError:
            link.close()
            raise
        self.sock = link


class NotConnected(Exception):
    """Nothing listens: nothing was asked."""


class CloudClient:
    """Calls to the cloud in `folder`. Safe to share between threads."""

    def __init__(self, folder: Path, settings: LocalSettings) -> None:
        self.folder = folder.absolute()
        self.settings = settings

    def call(self, verb: str, **document: object) -> dict[str, Any]:
        """One verb, within `call_timeout_seconds`; the daemon is started first when it is down.

        Raises ProviderError as the cloud refused or failed, LaunchOutcomeUnknown when the answer
        to a launch was lost.
        """
        next_start = time.monotonic()
        ends = next_start + self.settings.call_timeout_seconds
        while True:
            left = ends - time.monotonic()
            if left <= 0:
                raise ProviderError(RefusalKind.UNAVAILABLE, "the local cloud does not come up")
            try:
                return call_once(self.folder, verb, document, left)
            except NotConnected:
                if time.monotonic() >= next_start:
                    self._start(ends)
                    next_start = time.monotonic() + _START_AGAIN_SECONDS
                else:
                    time.sleep(_CONNECT_PAUSE_SECONDS)

    def ensure_running(self) -> None:
        """Start the daemon unless it runs. Raises ProviderError `unavailable`."""
        self.call("hello")

    def _start(self, ends: float) -> None:
        """Start the daemon, whoever else tries: the folder's lock lets one of them live."""
        prepare_folder(self.folder)
        paths = (str(_PROJECT_ROOT), os.environ.get("PYTHONPATH", ""))
        settings = self.settings.to_json()
        command = [sys.executable, "-m", DAEMON, "--dir", str(self.folder), "--settings", settings]
        try:
            with open(self.folder / LOG_FILE, "ab", opener=owner_only) as log:
                started = subprocess.run(
                    command,
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
                    cwd=self.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    timeout=max(0.1, ends - time.monotonic()),
                    check=False,
                )
        except subprocess.TimeoutExpired as error:
            raise ProviderError(RefusalKind.UNAVAILABLE, "the local cloud starts slowly") from error
        if started.returncode != 0:
            why = full_sentence({"local cloud": self.folder}) or f"see {LOG_FILE} in its folder"
            message = f"the local cloud does not start; {why}"
            raise ProviderError(RefusalKind.UNAVAILABLE, message)


def call_once(
    folder: Path, verb: str, document: dict[str, Any], timeout_seconds: float
) -> dict[str, Any]:
    """One request to a running daemon.

    Raises NotConnected when it certainly was not heard, else as `CloudClient.call`.
    """
    address = read_address(folder)
    if address is None:
        raise NotConnected
    connection = _UnixConnection(address, timeout_seconds)
    try:
        try:
            connection.connect()
        except (FileNotFoundError, ConnectionRefusedError):
            raise NotConnected from None
        connection.request("POST", f"/{verb}", body=json.dumps(document))
        response = connection.getresponse()
        answer: dict[str, Any] = json.loads(response.read())
    except (OSError, http.client.HTTPException, ValueError) as error:
        message = f"the local cloud did not answer {verb}: {type(error).__name__} {error}"
        if verb == "launch":
            raise LaunchOutcomeUnknown(message) from error
        raise ProviderError(RefusalKind.UNAVAILABLE, message) from error
    finally:
        connection.close()
    if response.status != 200:
        raise ProviderError(RefusalKind(answer["kind"]), answer["message"])
    return answer
