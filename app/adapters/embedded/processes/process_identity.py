"""Telling one process from another that later got the same pid.

Here: start tokens, command lines and the owner of a process, as psutil reads them. Not here:
signals (see `process_stopping`).
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
_READS_MAX: Final = 3
_ENDED: Final = frozenset({psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD})


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A pid together with the moment its process began, which no later process shares."""

    pid: int
    start_token: str

    def is_alive(self) -> bool:
        """True while this very process runs; a zombie is not alive."""
        return start_token(self.pid) == self.start_token


def identify(pid: int) -> ProcessIdentity | None:
    """The identity of the process that has `pid` now; None when there is none."""
    token = start_token(pid)
    return None if token is None else ProcessIdentity(pid, token)


def start_token(pid: int) -> str | None:
    """An opaque text that differs for any two processes with the same pid, even over a reboot.

    None when no process has this pid or it is a zombie waiting for its parent.
    """
    ticks = start_ticks(pid)
    return None if ticks is None else f"{boot_id()}:{ticks}"


def start_ticks(pid: int) -> int | None:
    """When the process began, in clock ticks since boot; None when it is gone or a zombie."""
    try:
        for _ in range(_READS_MAX):
            process, boot = psutil.Process(pid), psutil.boot_time()
            if process.status() in _ENDED:
                return None
            created = process.create_time()
            # Both move with the clock when it is set; their difference does not, unless that
            # happened between the two readings.
            if psutil.boot_time() == boot:
                break
    except (psutil.NoSuchProcess, ValueError):  # psutil takes no negative pid
        return None
    return round((created - boot) * _TICKS_PER_SECOND)


@functools.cache
def boot_id() -> str:
    """Names the host's current boot; process ids mean nothing over another."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return "unknown-boot"


def command_mentions(pid: int, program: str, argument: str) -> bool:
    """True when the process runs a binary called `program` with `argument` among its arguments."""
    try:
        words = psutil.Process(pid).cmdline()
    except (psutil.Error, ValueError):
        return False
    return words[:1] != [] and Path(words[0]).name == program and argument in words[1:]


def session_leaders_in(folder: Path, words: Sequence[str]) -> list[ProcessIdentity]:
    """Our own processes that lead a session, work in `folder` and have `words` as arguments.

    A supervisor's programs are such, even where nothing was written down about them. The words
    stand in a row.
    """
    wanted = list(words)
    found = []
    for process in psutil.process_iter():
        try:
            if process.uids().real != os.geteuid() or os.getsid(process.pid) != process.pid:
                continue
            arguments = process.cmdline()
            works_there = Path(process.cwd()).samefile(folder)
        except (psutil.Error, OSError):  # ended meanwhile, or not for us to see
            continue
        rows = (arguments[at : at + len(wanted)] for at in range(len(arguments)))
        if works_there and wanted in rows and (identity := identify(process.pid)) is not None:
            found.append(identity)
    return found
