"""The processes of a machine, found in /proc by the marker in their environment.

A machine is every process that carries its marker, whatever shares a session with one of those,
and their descendants: training workers start sessions of their own, and another user's
environment may be unreadable. Here: looking and killing. Not here: when (`local_cloud`).
Linux only.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MARKER: Final = "LOWTIDE_MACHINE_ID"
DISK: Final = "LOWTIDE_MACHINE_DIR"
# Places after the command name in /proc/PID/stat (man 5 proc).
_STATE, _PARENT, _SESSION, _START = 0, 1, 3, 19


@dataclass(frozen=True)
class _Process:
    pid: int
    parent: int
    session: int
    started: int


def start_ticks(pid: int) -> int | None:
    """When the process began, in clock ticks since boot; None when it is gone or a zombie."""
    process = _look(pid)
    return process.started if process else None


def carries_marker(pid: int, machine_id: str) -> bool:
    """Whether the process was started with this machine's marker."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return f"{MARKER}={machine_id}".encode() in environment.split(b"\0")


def find_processes(machine_id: str) -> tuple[int, ...]:
    """Pids of the machine, zombies left out, in order."""
    living = [
        process
        for name in os.listdir("/proc")
        if name.isdigit() and (process := _look(int(name))) is not None
    ]
    members = {process.pid for process in living if carries_marker(process.pid, machine_id)}
    if not members:
        return ()
    sessions = {process.session for process in living if process.pid in members}
    sessions.discard(os.getsid(0))
    members |= {process.pid for process in living if process.session in sessions}
    grown = True
    while grown:  # ends: every round adds at least one of finitely many processes
        children = {process.pid for process in living if process.parent in members} - members
        grown = bool(children)
        members |= children
    return tuple(sorted(members - {os.getpid()}))


def find_machine_ids(machines_folder: Path) -> tuple[str, ...]:
    """Ids of the machines in a folder that have processes, by the processes alone; in order."""
    mark, place = f"{MARKER}=".encode(), f"{DISK}={machines_folder}/".encode()
    found = set()
    for name in os.listdir("/proc"):
        if not name.isdigit() or _look(int(name)) is None:
            continue
        try:
            environment = Path(f"/proc/{name}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if any(variable.startswith(place) for variable in environment):
            found |= {one.removeprefix(mark) for one in environment if one.startswith(mark)}
    return tuple(sorted(os.fsdecode(machine_id) for machine_id in found))


def kill_once(machine_id: str) -> int:
    """SIGKILL everything found now; how many that was. Repeat until it is 0: forks race with it."""
    found = find_processes(machine_id)
    for pid in found:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    return len(found)


def boot_id() -> str:
    """Names the host's current boot; process ids mean nothing over another."""
    return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()


def _look(pid: int) -> _Process | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return None
    # The command name may hold spaces and brackets, so count from the last bracket.
    fields = text.rpartition(")")[2].split()
    if fields[_STATE] in {"Z", "X"}:
        return None
    return _Process(pid, int(fields[_PARENT]), int(fields[_SESSION]), int(fields[_START]))
