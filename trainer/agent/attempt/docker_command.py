"""The docker of this machine, by its command line: bounded calls, and its errors as sentences.

Not here: which image (`container_image`), or what runs in it (`run_place`).
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainer.agent.machine import process_group

DOCKER = "docker"
CALL_SECONDS = 60.0
LABEL = "lowtide.machine"


class ContainerFailed(Exception):
    """Docker did not do what it was asked to; the message is for a person."""


class Docker:
    """Calls the docker command with the machine's own environment, never with a job's."""

    def __init__(self, environment: Mapping[str, str], machine_id: str) -> None:
        self.environment = dict(environment)
        self._machine_id = machine_id

    def with_configuration(self, folder: Path) -> Docker:
        """The same with docker's configuration from this folder."""
        return Docker({**self.environment, "DOCKER_CONFIG": str(folder)}, self._machine_id)

    @property
    def label(self) -> str:
        """What every container of this machine carries."""
        return f"{LABEL}={self._machine_id}"

    def call(self, *arguments: str, seconds: float = CALL_SECONDS) -> str:
        """What it prints. Raises ContainerFailed with its last line of error."""
        try:
            done = subprocess.run(
                [DOCKER, *arguments],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=seconds,
                check=False,
            )
        except FileNotFoundError:
            raise ContainerFailed(
                "this machine has no docker, which a job with an image needs; use a machine image "
                "that brings it"
            ) from None
        except subprocess.TimeoutExpired:
            what = " ".join(arguments[:2])
            raise ContainerFailed(f"docker {what} took more than {seconds:.0f} s") from None
        except OSError as error:
            raise ContainerFailed(f"docker cannot be run: {error}") from error
        if done.returncode != 0:
            raise ContainerFailed(last_line(done.stderr) or last_line(done.stdout) or "no reason")
        return done.stdout.decode("utf-8", "replace")

    def inspect_image(self, reference: str) -> dict[str, Any] | None:
        """What docker knows of an image on this machine; None when it is not here."""
        try:
            found = json.loads(self.call("image", "inspect", reference))
        except (ContainerFailed, ValueError):
            return None
        return found[0] if isinstance(found, list) and found else None

    def remove(self, *names: str) -> None:
        """End and remove containers; one that is gone is no error, nor is a docker that hangs.

        What they run is found and killed by its marks in any case (`process_group`).
        """
        if not names:
            return
        try:
            self.call("rm", "--force", *names, seconds=15.0)
        except ContainerFailed:
            return

    def remove_left(self) -> None:
        """End every container that an earlier agent of this machine has left."""
        try:
            found = self.call("ps", "--all", "--quiet", "--filter", f"label={self.label}")
        except ContainerFailed:
            return
        self.remove(*found.split())

    def watch(
        self,
        arguments: Sequence[str],
        write: Callable[[bytes], None],
        on_start: Callable[[subprocess.Popen[bytes]], None],
    ) -> int:
        """Run a long call, its output to `write` as it comes; its exit code.

        It ends when it is killed, which `on_start` gives its process for. Raises ContainerFailed
        where there is no docker.
        """
        try:
            process = process_group.start_in_own_group(
                [DOCKER, *arguments], self.environment, Path("/")
            )
        except OSError as error:
            raise ContainerFailed(f"docker cannot be run: {error}") from error
        on_start(process)
        process_group.pump_output(process, write)
        return process.wait()


def last_line(output: bytes) -> str:
    """The last line that says something."""
    lines = [line.strip() for line in output.decode("utf-8", "replace").splitlines()]
    return next((line for line in reversed(lines) if line), "")[:1_000]
