"""The power-off that does not depend on the agent: a tiny process with a deadline in a file.

Run as a script of its own (`python -I -S power_off_watchdog.py FILE COMMAND`), so that it imports
next to nothing and lives on when the agent is killed, hangs, or runs out of memory. The agent
re-arms it by replacing FILE, which holds seconds on CLOCK_BOOTTIME; a missing FILE ends the timer.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

LOOK_SECONDS = 2.0
LIFE_SECONDS_MAX = 180 * 86_400.0
"""No machine of ours lives longer; a bound for the loop."""
MAIN_ARGUMENTS = (3, 4)
DEADLINE_WIDTH = 24
_LOCK_FLAGS = os.O_WRONLY | os.O_CREAT


def start_timer(
    deadline_file: Path, power_off_command: str, unarmed_at: float | None = None
) -> subprocess.Popen[bytes]:
    """Start the timer in a process group of its own; arm it first.

    unarmed_at: the deadline until there is a file, where a full disk has not let it be armed.
    """
    command = [sys.executable, "-I", "-S", __file__, str(deadline_file), power_off_command]
    return subprocess.Popen(
        command if unarmed_at is None else [*command, f"{unarmed_at:.3f}"],
        stdin=subprocess.DEVNULL,
        process_group=0,
    )


def arm(deadline_file: Path, at_seconds: float) -> bool:
    """Power off at this instant of CLOCK_BOOTTIME, unless armed again.

    On a disk that is full the file is written over in place, for which it always has one length.
    False where even that fails: then the earlier deadline stays.
    """
    content = f"{at_seconds:{DEADLINE_WIDTH}.3f}\n"
    temporary = deadline_file.with_name(deadline_file.name + ".tmp")
    try:
        temporary.write_text(content)
        temporary.replace(deadline_file)
        return True
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    try:
        descriptor = os.open(deadline_file, os.O_WRONLY)
        try:
            return os.pwrite(descriptor, content.encode(), 0) == len(content)
        finally:
            os.close(descriptor)
    except OSError:
        return False


def power_off(command: str) -> None:
    """Run the power-off command; a second call does no harm."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired, ValueError):
        subprocess.run(shlex.split(command), timeout=60, check=False, stdin=subprocess.DEVNULL)


def watch(deadline_file: Path, command: str, unarmed_at: float | None) -> None:
    """Wait for the deadline, reading it anew each time; then power off.

    Of several timers on one file, left by restarted agents, only the first one stays.
    unarmed_at: as `start_timer` takes it.
    """
    try:
        lock = os.open(deadline_file.with_name(deadline_file.name + ".lock"), _LOCK_FLAGS, 0o600)
    except OSError:
        lock = None  # no room even for an empty file: two power-offs do no more than one
    if lock is not None:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return
    _wait(deadline_file, command, unarmed_at)


def read_deadline(deadline_file: Path) -> float:
    """What is in the file. Raises OSError, or ValueError for one that is not whole."""
    content = deadline_file.read_bytes()
    if not content.endswith(b"\n"):
        raise ValueError("a deadline ends with its line")
    return float(content)


def _wait(deadline_file: Path, command: str, unarmed_at: float | None) -> None:
    born = time.clock_gettime(time.CLOCK_BOOTTIME)
    was_there = unarmed_at is None
    deadline = born + LIFE_SECONDS_MAX if unarmed_at is None else unarmed_at
    while True:
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        try:
            deadline = read_deadline(deadline_file)
            was_there = True
        except FileNotFoundError:
            if was_there:
                return
        except (OSError, ValueError):
            pass  # torn: the one before holds until the next look
        if now >= min(deadline, born + LIFE_SECONDS_MAX):
            power_off(command)
            return
        time.sleep(min(LOOK_SECONDS, max(0.05, deadline - now)))


if __name__ == "__main__" and len(sys.argv) in MAIN_ARGUMENTS:
    watch(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]) if len(sys.argv) > 3 else None)
