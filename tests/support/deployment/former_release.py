"""The former release: its source out of the history, and programs of both on one database.

Not here: the deployment that they run in (`control_plane`), or what is expected of it (tests/e2e).
"""

from __future__ import annotations

import os
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.cli.client.local_run import api_answers
from tests.support.deployment.control_plane import ControlPlane
from tests.support.servers.finished_commands import run_command
from tests.support.servers.free_port import free_port
from tests.support.sources.source_tree import ROOT

COMMIT = "4abd5e766a00ef7524d91c2625ad8951b6e3c39b"
"""The last commit with the schema of the former release; after a release, the commit of its tag."""
REVISION = "0009"
"""The newest revision of that schema."""

_SECONDS = 60


def unpack_former_release(folder: Path) -> Path:
    """The source of the former release, in the folder; fails the test where history lacks it."""
    archive = folder / "former.tar"
    done = run_command(
        ["git", "archive", "--output", str(archive), COMMIT], timeout=_SECONDS, cwd=ROOT
    )
    assert done.returncode == 0, (
        f"the history here lacks {COMMIT}, which this test runs: {done.stderr.strip()}. "
        "Clone the repository with its whole history, or `git fetch --unshallow`"
    )
    source = folder / "former"
    with tarfile.open(archive) as packed:
        packed.extractall(source, filter="data")
    archive.unlink()
    names = [path.name[:4] for path in (source / "migrations" / "versions").glob("[0-9]*.py")]
    assert max(names) == REVISION, f"{COMMIT} has the schema {max(names)}"
    return source


@contextmanager
def second_api(plane: ControlPlane, source: Path) -> Iterator[str]:
    """Another api beside the deployment's own, of this source and with the same settings: its URL.

    Returns once it answers, and ends it afterwards. Whether it is ready is not asked: the release
    of before says that it is not on any schema but its own, and serves all the same.
    """
    running = Path(f"/proc/{plane.pids()['api']}")
    command = (running / "cmdline").read_text("utf-8").split("\0")[:-1]
    pairs = (one.partition("=") for one in (running / "environ").read_text("utf-8").split("\0"))
    environment = {name: value for name, _, value in pairs if name}
    port = free_port()
    command[command.index("--port") + 1] = str(port)
    url = f"http://127.0.0.1:{port}"
    output = plane.state_dir / "logs" / "second-api.log"
    with output.open("wb") as file:
        process = subprocess.Popen(
            command,
            cwd=source,
            env={**environment, "PYTHONPATH": str(source), "PWD": os.fspath(source)},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    try:
        plane.wait(
            lambda: process.poll() is not None or api_answers(url, "/healthz"), "the second api"
        )
        assert process.poll() is None, output.read_text("utf-8", "replace")
        yield url
    finally:
        process.terminate()
        process.wait(_SECONDS)
