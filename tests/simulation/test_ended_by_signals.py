"""A simulation that is ended by a signal takes its PostgreSQL and its folder with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.deployment.control_plane import left_running
from tests.support.servers.embedded import killed_at_the_end, open_folder, wait_until
from tests.support.sources.source_tree import ROOT

SIMULATION = [sys.executable, "-m", "app.simulation", "--hours", "700"]


@pytest.mark.parametrize(
    ("number", "last_sign"),
    [
        pytest.param(
            signal.SIGTERM,
            "lowtide-simulation-*/postgres/postgres/base",
            marks=pytest.mark.full,
        ),
        # In the middle of the making of its database.
        (signal.SIGINT, "lowtide-simulation-*/postgres/postgres.new-*"),
        pytest.param(signal.SIGHUP, "lowtide-simulation-*", marks=pytest.mark.full),
    ],
)
def test_a_signal_leaves_neither_server_nor_folder(number: signal.Signals, last_sign: str):
    with open_folder() as folder:
        environment = {**os.environ, "TMPDIR": str(folder)}
        process = subprocess.Popen(SIMULATION, cwd=ROOT, env=environment, text=True)
        with killed_at_the_end(process):
            wait_until(lambda: any(folder.glob(last_sign)), last_sign)
            process.send_signal(number)
            process.send_signal(signal.SIGTERM)  # an impatient second one changes nothing
            assert process.wait(60) in (128 + number, 128 + signal.SIGTERM)
        assert _left(folder) == []


def _left(folder: Path) -> list[str]:
    return [*left_running(folder).values(), *(str(path) for path in folder.iterdir())]
