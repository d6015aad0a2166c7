"""Starting a machine's agent and waiting for its end, on the event loop.

A machine's operating system is imagined; its processes are real. Here: environment, start, exit.
Not here: whether to start the agent again (`local_cloud`).
"""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from app.adapters.embedded.processes.process_identity import start_ticks
from app.adapters.providers.local.files.cloud_settings import LocalSettings
from app.adapters.providers.local.files.durable_files import owner_only
from app.adapters.providers.local.machines.job_accounts import (
    JobAccounts,
    closed_folder,
    entering_command,
    give_disk,
)
from app.adapters.providers.local.machines.job_python import make_python
from app.adapters.providers.local.machines.machine import Machine
from app.adapters.providers.local.machines.machine_processes import DISK, MARKER
from trainer.protocol.run_config import IN_MEMORY, secret_folder_name

# What a machine's image would bring. Nothing else of the service's environment reaches a machine:
# it may hold credentials.
_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "VIRTUAL_ENV", "LD_LIBRARY_PATH",
         "SSL_CERT_FILE", "SSL_CERT_DIR", "DOCKER_HOST", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES",
         "PYTHONDONTWRITEBYTECODE")  # fmt: skip
_PROJECT_ROOT = Path(__file__).parents[5]
_POWER_OFF = Path(__file__).with_name("power_off.py")

AgentExit = Callable[[Machine, int | None], None]


def machines_folder(folder: Path) -> Path:
    """Where the machines of a cloud have their folders."""
    return folder / "machines"


def machine_folder(folder: Path, machine: Machine) -> Path:
    """Where a machine's disk and console are."""
    return machines_folder(folder) / machine.machine_id


class AgentProcesses:
    """The agents of one cloud. `on_exit(machine, code)` gets None where the code is unknown."""

    def __init__(
        self, folder: Path, settings: LocalSettings, accounts: JobAccounts, on_exit: AgentExit
    ) -> None:
        self._folder = folder
        self._settings = settings
        self._accounts = accounts
        self._on_exit = on_exit
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._watched: dict[str, int] = {}

    def start(self, machine: Machine) -> None:
        """Start the agent in a session of its own; fills the machine's agent fields.

        Raises OSError when the command cannot be run.
        """
        home = machine_folder(self._folder, machine)
        disk = home / "disk"
        disk.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._accounts.first_uid:
            for parent in (home.parent, home):
                parent.chmod(0o711)
            give_disk(disk, self._accounts.uid_of(machine.metadata_port))
        with open(home / "console.log", "ab", opener=owner_only) as console:
            child = subprocess.Popen(
                self._settings.agent_argv,
                cwd=disk,
                env=self._environment(machine, disk),
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                umask=0o022,
            )
        self._children[machine.machine_id] = child
        machine.agent_pid = child.pid
        machine.agent_started = start_ticks(child.pid)
        self.watch(machine)

    def watch(self, machine: Machine) -> bool:
        """Call `on_exit` when the agent ends; False when it is gone already."""
        if machine.agent_pid is None:
            return False
        try:
            handle = os.pidfd_open(machine.agent_pid)
        except ProcessLookupError:
            return False
        self.forget(machine)
        self._watched[machine.machine_id] = handle
        asyncio.get_running_loop().add_reader(handle, self._ended, machine)
        return True

    def forget(self, machine: Machine) -> None:
        """Stop watching the machine's agent."""
        handle = self._watched.pop(machine.machine_id, None)
        if handle is not None:
            asyncio.get_running_loop().remove_reader(handle)
            os.close(handle)

    def reap(self, machine: Machine) -> None:
        """Collect the exit status of a killed agent, so that no zombie stays."""
        child = self._children.get(machine.machine_id)
        if child is not None and child.poll() is not None:
            del self._children[machine.machine_id]

    def remove_disk(self, machine: Machine) -> None:
        """Delete everything the machine wrote, except its console log. A machine that was killed
        has left the secrets of its job in this one's memory.
        """
        shutil.rmtree(machine_folder(self._folder, machine) / "disk", ignore_errors=True)
        secrets = Path(IN_MEMORY) / secret_folder_name(machine.machine_id)
        shutil.rmtree(secrets, ignore_errors=True)

    def _ended(self, machine: Machine) -> None:
        self.forget(machine)
        child = self._children.pop(machine.machine_id, None)
        self._on_exit(machine, child.wait(timeout=5) if child else None)

    def _environment(self, machine: Machine, disk: Path) -> dict[str, str]:
        endpoint = f"127.0.0.1:{machine.metadata_port}"
        paths = (str(_PROJECT_ROOT), os.environ.get("PYTHONPATH", ""))
        power_off = (sys.executable, "-I", str(_POWER_OFF), str(self._folder), machine.machine_id)
        environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
        environment.update(machine.user_data)
        if self._accounts.first_uid:
            uid = self._accounts.uid_of(machine.metadata_port)
            environment["LOWTIDE_TRAINER_USER"] = str(uid)
            environment["LOWTIDE_TRAINER_PREFIX"] = shlex.join(entering_command(uid, disk))
            own = make_python(disk, uid)
            environment["PATH"] = _reachable(environment.get("PATH", os.defpath), own)
            if "VIRTUAL_ENV" in environment and own is not None:
                environment["VIRTUAL_ENV"] = str(own.parent)
            if "TMPDIR" in environment and not _open_to_all(Path(environment["TMPDIR"])):
                del environment["TMPDIR"]
        environment.update(
            {
                "PYTHONPATH": os.pathsep.join(path for path in paths if path),
                "PYTHONUNBUFFERED": "1",
                MARKER: machine.machine_id,
                DISK: str(disk),
                "LOWTIDE_CLOUD": machine.cloud,
                "LOWTIDE_PRIVATE_ADDRESS": "127.0.0.1",
                "LOWTIDE_INTERFACE": "lo",
                "LOWTIDE_PORT_FROM": str(machine.first_port),
                "LOWTIDE_PORT_TO": str(machine.last_port),
                "LOWTIDE_AGENT_FAILURES": str(machine.restarts),
                "LOWTIDE_POWEROFF_COMMAND": shlex.join(power_off),
            }
        )
        if machine.is_gce:
            environment["GCE_METADATA_HOST"] = endpoint
            # Compute Engine's metadata names no deadline: a machine knows what it was granted.
            environment["LOWTIDE_NOTICE_SECONDS"] = str(int(self._settings.gce_notice_seconds))
        else:
            environment["AWS_EC2_METADATA_SERVICE_ENDPOINT"] = f"http://{endpoint}"
        return environment


def _reachable(path: str, own: Path | None) -> str:
    """PATH without what only root may enter; this Python stands where the first of it was.

    own: stands before Lowtide's own programs, wherever those are.
    """
    kept: list[str] = []
    ours = str(Path(sys.executable).parent)
    for part in path.split(os.pathsep):
        closed = Path(part).is_dir() and closed_folder(Path(part).absolute()) is not None
        entry = ours if closed else part
        before = [str(own)] if own is not None and entry == ours else []
        kept += [each for each in (*before, entry) if each not in kept]
    return os.pathsep.join(kept)


def _open_to_all(folder: Path) -> bool:
    try:
        return folder.stat().st_mode & 0o003 == 0o003 and closed_folder(folder) is None
    except OSError:
        return False
