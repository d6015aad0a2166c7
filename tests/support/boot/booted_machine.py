"""A machine that boots by the shipped script, on a folder of its own instead of a disk.

Here: rendering the script and running it by a shell. Not here: the api it talks to (`agent_api`),
or what is expected of it (tests/integration/boot/test_boot_script.py).
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from app.adapters.providers.boot_script import render
from tests.support.agent.fake_metadata import FakeMetadata


class BootedMachine:
    """One run of the script; `output()` is all that it and the agent printed."""

    def __init__(self, root: Path, process: subprocess.Popen[bytes]) -> None:
        self.root = root
        self.process = process

    def output(self) -> str:
        return (self.root / "console").read_text("utf-8", "replace")

    def wait(self, seconds: float = 120.0) -> int:
        """The exit code of the script."""
        return self.process.wait(seconds)

    @property
    def powered_off(self) -> bool:
        return (self.root / "is-off").exists()


def machine_variables(root: Path, url: str, token: str, **more: str) -> dict[str, str]:
    """User data of a test's machine: everything it would reach outside is below `root`."""
    return {
        "LOWTIDE_CONTROL_URL": url,
        "LOWTIDE_LAUNCH_TOKEN": token,
        "LOWTIDE_BOOT_PREFIX": str(root),
        "LOWTIDE_BOOT_WAIT_SECONDS": "60",
        "LOWTIDE_PYTHON": sys.executable,
        "LOWTIDE_PRIVATE_ADDRESS": "127.0.0.1",
        "LOWTIDE_INTERFACE": "lo",
        "LOWTIDE_POWEROFF_COMMAND": f"touch {root}/is-off",
        "LOWTIDE_MACHINE_ID": f"machine-{os.getpid()}-{root.name}",
        # Whatever is not on the machine already must come from the control plane.
        "PIP_NO_INDEX": "1",
        **more,
    }


@contextmanager
def booting(
    shell: str,
    root: Path,
    variables: dict[str, str],
    machine: str,
    cloud: str = "ec2",
    stage: str = "",
) -> Iterator[BootedMachine]:
    """Boot by `shell`; machine: the provider's id of it. Ends whatever still runs.

    stage: what a unit of the machine would run, instead of the boot.
    """
    root.mkdir(parents=True, exist_ok=True)
    script = root / "user-data"
    path = f"{root / 'commands'}:/usr/sbin:/usr/bin:/sbin:/bin"
    with metadata_service(machine) as endpoint:
        script.write_text(render({**variables, **endpoint}, cloud))
        command = [shell, str(script), *([stage] if stage else [])]
        environment = {"PATH": path, "HOME": str(root)}
        with boot_process(command, root / "console", environment, root, root) as process:
            yield BootedMachine(root, process)


@contextmanager
def metadata_service(machine: str) -> Iterator[dict[str, str]]:
    """Both clouds' metadata service for the machine with this id: the variables that lead to it."""
    metadata = FakeMetadata(machine)
    try:
        yield {
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": metadata.url,
            "GCE_METADATA_HOST": metadata.url.removeprefix("http://"),
        }
    finally:
        metadata.stop()


@contextmanager
def boot_process(
    command: Sequence[str], console: Path, environment: dict[str, str], cwd: Path, root: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a boot that prints to the file `console`; end it and the power-off timer below `root`."""
    with console.open("wb") as output:
        process = subprocess.Popen(
            command,
            env=environment,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(5)
        # The agent's own power-off timer outlives the agent.
        for file in root.rglob("agent/power-off-at"):
            file.unlink()


def fake_command(root: Path, name: str, script: str) -> None:
    """A command of the machine's image: shell code, found before the system's own."""
    folder = root / "commands"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(stat.S_IRWXU)
