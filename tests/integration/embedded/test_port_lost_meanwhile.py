"""`lowtide up` whose port another program takes after it was tried, and before its api listens."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support.servers.embedded import killed_at_the_end, open_folder, wait_until
from tests.support.servers.free_port import free_port

LOWTIDE = str(Path(sys.executable).with_name("lowtide"))


class Ready(BaseHTTPRequestHandler):
    """Answers every question as an api that is ready does."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the test reads what `lowtide up` prints."""


@pytest.fixture
def folder() -> Iterator[Path]:
    with open_folder() as parent:
        yield parent


@pytest.mark.full  # starts all programs, and only to see them stop
def test_an_api_that_is_not_its_own_is_not_taken_for_ready(folder: Path):
    port, output = free_port(), folder / "out"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LOWTIDE_")}
    with output.open("wb") as file:
        process = subprocess.Popen(
            [LOWTIDE, "up", "--state-dir", str(folder / "state"), "--port", str(port)],
            stdout=file,
            stderr=subprocess.STDOUT,
            env=kept,
            start_new_session=True,
        )
    try:
        with killed_at_the_end(process):
            wait_until(lambda: b"starting; the programs log to" in output.read_bytes(), "it begins")
            with ThreadingHTTPServer(("127.0.0.1", port), Ready) as other:
                threading.Thread(target=other.serve_forever, daemon=True).start()
                try:
                    assert process.wait(120) == 3
                finally:
                    other.shutdown()
    finally:
        down = [LOWTIDE, "down", "--state-dir", str(folder / "state")]
        subprocess.run(down, env=kept, check=False, timeout=120, capture_output=True)
    told = output.read_text("utf-8")
    assert "ready http" not in told
    assert "address already in use" in told
