"""The power-off that does not depend on the agent: a tiny process with a deadline in a file.

Run as a script of its own (`python -I -S dead_man.py FILE COMMAND`), so that it imports next to
nothing and lives on when the agent is killed, hangs, or runs out of memory. The agent re-arms it
by replacing FILE, which holds seconds on CLOCK_BOOTTIME; a missing FILE ends the timer.
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
MAIN_ARGUMENTS = 3


def start_timer(deadline_file: Path, power_off_command: str) -> subprocess.Popen[bytes]:
    """Start the timer in a process group of its own; arm it first."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, str(deadline_file), power_off_command],
        stdin=subprocess.DEVNULL,
        process_group=0,
    )


def arm(deadline_file: Path, at_seconds: float) -> None:
    """Power off at this instant of CLOCK_BOOTTIME, unless armed again."""
    temporary = deadline_file.with_name(deadline_file.name + ".tmp")
    temporary.write_text(f"{at_seconds:.3f}\n")
    os.replace(temporary, deadline_file)


def disarm(deadline_file: Path) -> None:
    """End the timer without a power-off."""
    deadline_file.unlink(missing_ok=True)


def power_off(command: str) -> None:
    """Run the power-off command; a second call does no harm."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired, ValueError):
        subprocess.run(shlex.split(command), timeout=60, check=False, stdin=subprocess.DEVNULL)


def watch(deadline_file: Path, command: str) -> None:
    """Wait for the deadline, reading it anew each time; then power off.

    Of several timers on one file, left by restarted agents, only the first one stays.
    """
    with deadline_file.with_name(deadline_file.name + ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return
        _wait(deadline_file, command)


def _wait(deadline_file: Path, command: str) -> None:
    born = time.clock_gettime(time.CLOCK_BOOTTIME)
    while True:
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        try:
            deadline = float(deadline_file.read_text())
        except OSError:
            return
        except ValueError:
            deadline = born + LIFE_SECONDS_MAX
        if now >= min(deadline, born + LIFE_SECONDS_MAX):
            power_off(command)
            return
        time.sleep(min(LOOK_SECONDS, max(0.05, deadline - now)))


if __name__ == "__main__" and len(sys.argv) == MAIN_ARGUMENTS:
    watch(Path(sys.argv[1]), sys.argv[2])
