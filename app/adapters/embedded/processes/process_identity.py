"""Telling one process from another that later got the same pid.

Here: start tokens, command lines and the owner of a process, read from /proc or `ps`. Not here:
signals (see `process_stopping`).
"""

from __future__ import annotations

import functools
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_PS_TIMEOUT_SECONDS = 5.0
# Position of `state` and `starttime` after the command name in /proc/PID/stat (man 5 proc).
_STATE_FIELD = 0
_START_TICKS_FIELD = 19


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
    if pid <= 0:
        return None
    if not _has_proc():
        return _start_token_from_ps(pid)
    try:
        # The command name may hold spaces and brackets, so count from the last bracket.
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    if fields[_STATE_FIELD] in {"Z", "X"}:
        return None
    return f"{_boot_id()}:{fields[_START_TICKS_FIELD]}"


def command_mentions(pid: int, program: str, argument: str) -> bool:
    """True when the process runs a binary called `program` with `argument` among its arguments."""
    if _has_proc():
        try:
            raw = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            return False
        words = [word.decode("utf-8", "replace") for word in raw.split(b"\0")]
        return Path(words[0]).name == program and argument in words[1:]
    text = _ps(pid, "command=")
    return text is not None and program in text and argument in text


def session_leaders_in(folder: Path, words: Sequence[str]) -> list[ProcessIdentity]:
    """Our own processes that lead a session, work in `folder` and have `words` as arguments.

    A supervisor's programs are such, even where nothing was written down about them. The words
    stand in a row. Empty where there is no /proc.
    """
    if not _has_proc():
        return []
    wanted = [os.fsencode(word) for word in words]
    found = []
    for name in sorted(filter(str.isdecimal, os.listdir("/proc")), key=int):
        place = Path("/proc", name)
        try:
            if place.stat().st_uid != os.geteuid() or os.getsid(int(name)) != int(name):
                continue
            arguments = (place / "cmdline").read_bytes().split(b"\0")
            works_there = (place / "cwd").samefile(folder)
        except OSError:  # ended meanwhile, or not for us to see
            continue
        rows = (arguments[at : at + len(wanted)] for at in range(len(arguments)))
        if works_there and wanted in rows and (identity := identify(int(name))) is not None:
            found.append(identity)
    return found


def _has_proc() -> bool:
    return Path("/proc/self/stat").exists()


@functools.cache
def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return "unknown-boot"


def _start_token_from_ps(pid: int) -> str | None:
    text = _ps(pid, "state=,lstart=")
    if text is None or text.startswith("Z"):
        return None
    return " ".join(text.split()[1:])


def _ps(pid: int, columns: str) -> str | None:
    found = subprocess.run(
        ["ps", "-ww", "-o", columns, "-p", str(pid)],
        capture_output=True,
        text=True,
        timeout=_PS_TIMEOUT_SECONDS,
        check=False,
    )
    text = found.stdout.strip()
    return text if found.returncode == 0 and text else None
