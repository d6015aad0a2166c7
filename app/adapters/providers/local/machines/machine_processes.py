"""The processes of a machine, found by the marker in their environment.

A machine is every process that carries its marker, whatever shares a session with one of those,
and their descendants: training workers start sessions of their own, and another user's
environment may be unreadable. Here: looking and killing. Not here: when (`local_cloud`).
Linux only.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import psutil

from app.adapters.embedded.processes.process_identity import start_ticks

MARKER: Final = "LOWTIDE_MACHINE_ID"
DISK: Final = "LOWTIDE_MACHINE_DIR"


def carries_marker(pid: int, machine_id: str) -> bool:
    """Whether the process was started with this machine's marker."""
    try:
        return psutil.Process(pid).environ().get(MARKER) == machine_id
    except psutil.Error:
        return False


def find_processes(machine_id: str) -> tuple[int, ...]:
    """Pids of the machine, zombies left out, in order."""
    living = list(psutil.process_iter())
    members = {process.pid for process in living if _environment(process).get(MARKER) == machine_id}
    if not members:
        return ()
    sessions = {_session(pid) for pid in members} - {None, os.getsid(0)}
    members |= {process.pid for process in living if _session(process.pid) in sessions}
    parents = {process.pid: _parent(process) for process in living}
    grown = True
    while grown:  # ends: every round adds at least one of finitely many processes
        children = {pid for pid, parent in parents.items() if parent in members} - members
        grown = bool(children)
        members |= children
    return tuple(sorted(pid for pid in members - {os.getpid()} if start_ticks(pid) is not None))


def find_machine_ids(machines_folder: Path) -> tuple[str, ...]:
    """Ids of the machines in a folder that have processes, by the processes alone; in order."""
    environments = map(_environment, psutil.process_iter())
    return tuple(
        sorted(
            {
                environment[MARKER]
                for environment in environments
                if MARKER in environment
                and environment.get(DISK, "").startswith(f"{machines_folder}/")
            }
        )
    )


def kill_once(machine_id: str) -> int:
    """SIGKILL everything found now; how many that was. Repeat until it is 0: forks race with it."""
    found = find_processes(machine_id)
    for pid in found:
        try:
            psutil.Process(pid).kill()
        except psutil.NoSuchProcess:
            continue
    return len(found)


def _environment(process: psutil.Process) -> dict[str, str]:
    try:
        return process.environ()
    except psutil.Error:  # ended meanwhile, or not for us to see
        return {}


def _parent(process: psutil.Process) -> int | None:
    try:
        return process.ppid()
    except psutil.Error:
        return None


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None
