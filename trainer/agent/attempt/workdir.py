"""The user's working folder on the machine: fetched, verified, unpacked, set up once.

Not here: the archive's making (the control plane) and the attempt's own folders.
"""

from __future__ import annotations

import hashlib
import shutil
import signal
import subprocess
import tarfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from trainer.agent.attempt.run_place import RunPlace
from trainer.agent.machine import process_group
from trainer.agent.machine.control_plane_client import ControlPlaneClient, WorkdirInvalid
from trainer.agent.machine.machine_folders import MachineFolders
from trainer.agent.machine.small_files import replace_file

SETUP_SECONDS_MAX = 3_600.0
MEMBERS_MAX = 500_000


class SetupFailed(Exception):
    """The setup command ended with an error, or took more than an hour."""


def ensure_workdir(client: ControlPlaneClient, folders: MachineFolders, digest: str | None) -> None:
    """Unpack the working folder once per machine; nothing to do without one.

    Raises WorkdirInvalid (also for an archive that reaches outside) and ControlPlaneUnreachable.
    """
    mark = folders.agent / "workdir-digest"
    if digest is None or _says(mark, digest):
        return
    archive = folders.agent / "workdir.tar.gz"
    try:
        client.fetch_workdir(digest, archive)
        shutil.rmtree(folders.workdir, ignore_errors=True)
        folders.workdir.mkdir()
        unpack(archive, folders.workdir)
    finally:
        archive.unlink(missing_ok=True)
    folders.give_away(folders.workdir, *folders.workdir.rglob("*"))
    replace_file(mark, digest)


def unpack(archive: Path, target: Path) -> None:
    """Extract a tar.gz with Python's `data` filter: no absolute path, no way out, no devices."""
    try:
        with tarfile.open(archive, "r:gz") as packed:
            for number, member in enumerate(packed):
                if number >= MEMBERS_MAX:
                    raise WorkdirInvalid(f"the archive has more than {MEMBERS_MAX} members")
                packed.extract(member, target, filter="data")
    except (tarfile.TarError, EOFError, OSError) as error:
        raise WorkdirInvalid(f"the working folder cannot be unpacked: {error}") from error


def ensure_setup(
    folders: MachineFolders,
    command: str | None,
    digest: str | None,
    environment: Mapping[str, str],
    place: RunPlace,
    script: Path,
    write: Callable[[bytes], None],
    on_start: Callable[[subprocess.Popen[bytes]], None],
) -> None:
    """Run the setup command once per machine and working folder; raises SetupFailed.

    Its output goes to `write`, the process to `on_start`, so that it can be killed. script: a file
    of the attempt for a container's start. Raises ContainerFailed, too.
    """
    wanted = hashlib.sha256(f"{digest}\0{command}".encode()).hexdigest()
    mark = folders.setup_mark
    if command is None or (_says(mark, wanted) and place.holds_setup()):
        return
    started = place.start(["/bin/sh", "-c", command], environment, script, keep=True)
    try:
        process = process_group.start_in_own_group(
            started.command, started.environment, folders.workdir, started.user
        )
        on_start(process)
        code = _pump(process, write)
        if code != 0:
            raise SetupFailed(
                f"the setup command ended with exit code {code}; its output is in the log"
            )
        place.keep_setup(started, wanted)
    finally:
        place.end(started)
    replace_file(mark, wanted)  # without it, it is only set up once more


def _says(mark: Path, wanted: str) -> bool:
    """Whether the mark is there and whole; one that was torn says nothing."""
    try:
        return mark.read_bytes() == wanted.encode()
    except OSError:
        return False


def _pump(process: subprocess.Popen[bytes], write: Callable[[bytes], None]) -> int:
    timer = threading.Timer(
        SETUP_SECONDS_MAX, lambda: process_group.signal_group(process.pid, signal.SIGKILL)
    )
    timer.daemon = True
    timer.start()
    try:
        process_group.pump_output(process, write)
        return process.wait(timeout=SETUP_SECONDS_MAX)
    finally:
        timer.cancel()
