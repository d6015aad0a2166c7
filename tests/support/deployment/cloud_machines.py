"""Machines of the fake clouds as real processes: each boots by the very script it was rented with.

Here: a machine's folder, metadata endpoint and processes, and the loop that starts what a fake
cloud has started and kills what it has ended. Not here: the clouds (`aws_fake`, `gce_fake`), or
what a cloud's machines have in their image (`cloud_sources`).
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from app.adapters.providers.local.machines.machine_processes import find_processes, kill_once
from tests.support.agent.fake_metadata import FakeMetadata

_LOOK_SECONDS = 0.05
_PORTS_FROM, _PORTS_EACH = 21_000, 40
_KILL_SECONDS = 10.0


@dataclass(frozen=True)
class Running:
    """A machine that a cloud has started: the script it was given."""

    machine_id: str
    script: bytes


class MachineSource(Protocol):
    """A fake cloud as its machines' host sees it."""

    def running(self) -> list[Running]:
        """What runs now; time passes for the cloud meanwhile."""
        ...

    def equip(self, metadata: FakeMetadata) -> dict[str, str]:
        """Fill the metadata of a new machine: the environment that its image sets."""
        ...

    def powered_off(self, machine_id: str) -> None:
        """The machine's own operating system has ended it."""
        ...


class RentedMachine:
    """One machine: its disk is a folder, its processes carry its name."""

    def __init__(
        self, root: Path, metadata: FakeMetadata, process: subprocess.Popen[bytes]
    ) -> None:
        self.root = root
        self.metadata = metadata
        self.process = process
        self.ended = False

    @property
    def marker(self) -> str:
        """What its processes are found by."""
        return self.root.name

    @property
    def console(self) -> str:
        """All that the script and the agent printed."""
        return (self.root / "console").read_text("utf-8", "replace")

    @property
    def is_off(self) -> bool:
        """Whether it has powered itself off."""
        return (self.root / "is-off").exists()

    def cut_power(self) -> None:
        """SIGKILL everything on it, and close its metadata."""
        self.ended = True
        until = time.monotonic() + _KILL_SECONDS
        while kill_once(self.marker) and time.monotonic() < until:
            time.sleep(0.02)
        self.process.wait(_KILL_SECONDS)
        self.metadata.stop()


class MachineHall:
    """Runs the machines of several fake clouds; `environment` is added to every machine's."""

    def __init__(
        self, folder: Path, sources: list[MachineSource], environment: Mapping[str, str]
    ) -> None:
        self._folder = folder
        self._sources = sources
        self._environment = environment
        self.machines: dict[str, RentedMachine] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="machine hall", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End all machines; none of their processes may be left."""
        self._stopping.set()
        self._thread.join(timeout=30)
        for machine in self.machines.values():
            if not machine.ended:
                machine.cut_power()
        left = {name: find_processes(one.marker) for name, one in self.machines.items()}
        assert not any(left.values()), f"processes left on machines: {left}"

    def consoles(self, tail: int = 2_000) -> str:
        """The end of every machine's console, for the message of a failed test."""
        return "\n".join(
            f"--- console of {name}\n{one.console[-tail:]}" for name, one in self.machines.items()
        )

    def _run(self) -> None:
        while not self._stopping.wait(_LOOK_SECONDS):
            running = {one.machine_id: (source, one) for source in self._sources
                       for one in source.running()}  # fmt: skip
            for machine_id, (source, one) in running.items():
                if machine_id not in self.machines:
                    self.machines[machine_id] = self._boot(source, one)
                elif self.machines[machine_id].is_off and not self.machines[machine_id].ended:
                    self.machines[machine_id].cut_power()
                    source.powered_off(machine_id)
            for machine_id, machine in self.machines.items():
                if machine_id not in running and not machine.ended:
                    machine.cut_power()

    def _boot(self, source: MachineSource, one: Running) -> RentedMachine:
        root = self._folder / f"{one.machine_id}-{os.getpid()}"
        root.mkdir(parents=True)
        metadata = FakeMetadata(one.machine_id)
        first_port = _PORTS_FROM + _PORTS_EACH * len(self.machines)
        (root / "user-data").write_bytes(one.script)
        environment = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(root),
            **self._environment,
            "LOWTIDE_MACHINE_ID": root.name,
            "LOWTIDE_BOOT_PREFIX": str(root),
            "LOWTIDE_BOOT_WAIT_SECONDS": "30",
            "LOWTIDE_PYTHON": sys.executable,
            "LOWTIDE_PRIVATE_ADDRESS": "127.0.0.1",
            "LOWTIDE_INTERFACE": "lo",
            "LOWTIDE_PORT_FROM": str(first_port),
            "LOWTIDE_PORT_TO": str(first_port + _PORTS_EACH - 1),
            "LOWTIDE_POWEROFF_COMMAND": f"touch {root}/is-off",
            # What the image lacks must come from the control plane.
            "PIP_NO_INDEX": "1",
            **source.equip(metadata),
        }
        with (root / "console").open("wb") as console:
            process = subprocess.Popen(
                ["/bin/sh", str(root / "user-data")],
                env=environment,
                cwd=root,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return RentedMachine(root, metadata, process)
