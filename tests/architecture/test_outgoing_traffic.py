"""The proof that a deployment stays on this machine sees every way out of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.outgoing_guard.outgoing_traffic import watched_traffic

# 192.0.2.1 is an address that no network routes (RFC 5737); a UDP socket sends nothing to connect.
_SOCKET = """
import socket
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
    one.connect(("192.0.2.1", 9))
"""
_NAME = """
import socket
try:
    socket.getaddrinfo("192.0.2.1", 80)
except OSError:
    pass
"""
_PROXY = """
import urllib.request
try:
    urllib.request.urlopen("http://192.0.2.1/", timeout=5)
except OSError:
    pass
"""
_RUST = """
from datetime import timedelta
import obstore
from obstore.store import S3Store
store = S3Store("lowtide-nowhere", config={"access_key_id": "x", "secret_access_key": "x"},
                client_options={"timeout": "5s"},
                retry_config={"max_retries": 0, "retry_timeout": timedelta(seconds=5)})
try:
    obstore.head(store, "key")
except Exception:
    pass
"""
_HERE = """
import socket
with socket.create_server(("127.0.0.1", 0)) as server:
    socket.create_connection(server.getsockname(), timeout=5).close()
"""


@pytest.mark.parametrize(
    ("program", "found"),
    [
        (_SOCKET, "socket.connect 192.0.2.1"),
        (_NAME, "socket.getaddrinfo 192.0.2.1"),
        (_PROXY, "GET http://192.0.2.1/"),
        (_RUST, "CONNECT s3.us-east-1.amazonaws.com:443"),
        (_HERE, None),
    ],
    ids=["socket", "name", "proxy", "rust", "here"],
)
def test_what_wants_to_leave_is_seen(tmp_path: Path, program: str, found: str | None):
    with watched_traffic(tmp_path / "sockets") as traffic:
        environment = {**os.environ, **traffic.environment}
        subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=120)
        assert traffic.programs()
        assert traffic.outside() == ([] if found is None else [f"outside {found}"])
