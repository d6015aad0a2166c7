"""Whole agents as processes of their own, with a control plane and a metadata server per machine.

Not here: what is expected of them (tests/integration/agent/test_agent_run.py, test_agent_stop.py).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.agent.fake_control_plane import FakeControlPlane
from tests.support.agent.fake_metadata import FakeMetadata
from tests.support.servers.free_port import free_port
from trainer.agent.machine.process_group import marked_processes
from trainer.protocol.run_config import RunConfig

REPOSITORY = Path(__file__).resolve().parents[3]
PORTS_EACH = 10

COMMAND = r"""
import json, os, signal, sys, time, pathlib
stop = []
signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
folder = pathlib.Path(os.environ["LOWTIDE_CHECKPOINT_DIR"])
resume = os.environ.get("LOWTIDE_RESUME_DIR")
step = int(pathlib.Path(resume, "step").read_text()) if resume else 0
first, total = step, int(os.environ.get("TOTAL", "1000000"))
print("starts at", step, flush=True)
print("was once at", os.environ.get("LOWTIDE_REACHED_STEP"), flush=True)
def tell(**line):
    with open(os.environ["LOWTIDE_PROGRESS_FILE"], "a") as file:
        file.write(json.dumps(line) + "\n")
def save(final=False):
    tmp = folder / f"step-{step:012d}.tmp"
    tmp.mkdir()
    (tmp / "step").write_text(str(step))
    (tmp / "manifest.json").write_text(json.dumps({"final": final, "metrics": {"loss": 0.5}}))
    tmp.rename(folder / f"step-{step:012d}")
while step < total and not stop:
    step += 1
    tell(type="step", step=step, total_steps=total, loss=1.0 / step)
    if step % 10 == 0:
        save()
    time.sleep(0.02)
if stop:
    if step % 10:
        save()
    print("drained at", step, flush=True)
    sys.exit(75)
if os.environ.get("FINAL"):
    step += 1
    save(final=True)
"""


_FAILING = """
try:
    from trainer.agent.rules import supervisor
    from trainer.agent.runtime import disk_watch
except ImportError:
    pass
else:
    def fail(*_):
        raise KeyError("nobody thought of this")

    {part} = fail
"""


def failing_agent(folder: Path, part: str = "supervisor.step") -> str:
    """A PYTHONPATH with which every agent fails as soon as it is registered.

    part: the function that fails, in the main thread or in another one.
    """
    faults = folder / "faults"
    faults.mkdir(exist_ok=True)
    (faults / "sitecustomize.py").write_text(_FAILING.format(part=part))
    return str(faults)


class World:
    """A control plane, metadata per machine, and the agents started by the test."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.plane: FakeControlPlane | None = None
        self.metadata: dict[str, FakeMetadata] = {}
        self.agents: list[subprocess.Popen[bytes]] = []
        (root / "command.py").write_text(COMMAND)

    def open(self, lease_seconds: float = 60.0, **config: Any) -> FakeControlPlane:
        settings = {
            "job_id": "job-1",
            "job_name": "test",
            "num_nodes": 1,
            "gpus_per_node": 1,
            "checkpoint_uri": (self.root / "store").as_uri(),
            "checkpoint_keep": 2,
            "stall_timeout_seconds": 60.0,
            "run": f"exec {sys.executable} {self.root}/command.py",
        }
        self.plane = FakeControlPlane(RunConfig(**{**settings, **config}), lease_seconds)
        return self.plane

    def start(
        self,
        machine: str = "i-1",
        cloud: str = "ec2",
        port: int | None = None,
        environment: Mapping[str, str] | None = None,
        **more: str,
    ) -> subprocess.Popen[bytes]:
        assert self.plane is not None
        if machine not in self.metadata:
            self.metadata[machine] = FakeMetadata(machine)
        port = port or free_port(PORTS_EACH)
        variables = {
            **os.environ,
            "PYTHONPATH": str(REPOSITORY),
            "LOWTIDE_CONTROL_URL": self.plane.url,
            "LOWTIDE_LAUNCH_TOKEN": "launch-token",
            "LOWTIDE_MACHINE_DIR": str(self.root / machine),
            "LOWTIDE_MACHINE_ID": self.machine_id(machine),
            "LOWTIDE_CLOUD": cloud,
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": self.metadata[machine].url,
            "GCE_METADATA_HOST": self.metadata[machine].url.removeprefix("http://"),
            "LOWTIDE_PRIVATE_ADDRESS": "127.0.0.1",
            "LOWTIDE_PORT_FROM": str(port),
            "LOWTIDE_PORT_TO": str(port + PORTS_EACH - 1),
            "LOWTIDE_POWEROFF_COMMAND": f"touch {self.root}/{machine}-is-off",
            **(environment or {}),
            **more,
        }
        command = [sys.executable, "-m", "trainer.agent.main"]
        agent = subprocess.Popen(command, env=variables, cwd=self.root)
        self.agents.append(agent)
        return agent

    def machine_id(self, machine: str) -> str:
        return f"{machine}-{os.getpid()}-{self.root.name}"

    def processes(self, machine: str = "i-1") -> list[int]:
        return marked_processes(self.machine_id(machine))

    def _timers(self) -> list[int]:
        """The power-off timers of these machines: a full disk may have left one without a file."""
        mark = f"{self.root}/".encode()
        found = []
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                line = Path(f"/proc/{entry}/cmdline").read_bytes()
            except OSError:
                continue
            if b"power_off_watchdog.py" in line and mark in line:
                found.append(int(entry))
        return found

    def close(self) -> None:
        for agent in self.agents:
            agent.kill()
            agent.wait(timeout=60)
        for pid in self._timers():
            os.kill(pid, signal.SIGKILL)
        for machine, server in self.metadata.items():
            for pid in self.processes(machine):
                os.kill(pid, signal.SIGKILL)
            (self.root / machine / "agent" / "power-off-at").unlink(missing_ok=True)
            server.stop()
        if self.plane is not None:
            self.plane.stop()
