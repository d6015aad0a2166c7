"""Stopping processes for good: ask, wait, then kill, and never a process that is not the one meant.

Not here: who should be stopped and when (supervisor, run record, embedded servers).
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.adapters.embedded.processes.process_identity import ProcessIdentity

_POLL_SECONDS = 0.02
_KILL_WAIT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class StopTarget:
    """One process to stop: the polite signal, and how long it may take over it.

    `whole_group` False spares the others in its process group, which are not ours to kill.
    """

    name: str
    identity: ProcessIdentity
    stop_signal: int
    stop_timeout_seconds: float
    whole_group: bool = True


def stop_processes(
    targets: Sequence[StopTarget], *, hurry: Callable[[], bool] = lambda: False
) -> list[str]:
    """Stop all targets side by side and return the names that had to be killed.

    Each gets its own signal, on its pid alone; after its timeout, or once `hurry()` says so, it
    gets SIGKILL. With `whole_group`, so does every member of its group that is left then.
    """
    living = [target for target in targets if target.identity.is_alive()]
    for target in living:
        _send(target.identity.pid, target.stop_signal)
    began = time.monotonic()
    waiting, killed = list(living), []
    longest = max((target.stop_timeout_seconds for target in living), default=0.0)
    while waiting and time.monotonic() - began < longest + _KILL_WAIT_SECONDS:
        waited = time.monotonic() - began
        for target in list(waiting):
            if not target.identity.is_alive():
                _kill_group(target)
                waiting.remove(target)
            elif target.name not in killed and (hurry() or waited >= target.stop_timeout_seconds):
                killed.append(target.name)
                _kill_group(target)
                _send(target.identity.pid, signal.SIGKILL)
        if waiting:
            time.sleep(_POLL_SECONDS)
    return killed


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _kill_group(target: StopTarget) -> None:
    """SIGKILL what is left of the group that the target leads, if it leads one."""
    if target.whole_group and target.identity.pid != os.getpgrp():
        kill_group_of(target.identity.pid)


def kill_group_of(leader_pid: int) -> None:
    """SIGKILL the process group of a process that is, or was a moment ago, its leader."""
    try:
        os.killpg(leader_pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        # No such group (left), or macOS refusing for a group of zombies.
        return
