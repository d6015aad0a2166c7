"""A child process with limits on memory, processor time and files, for reading uploaded bytes."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Final

_OPEN_FILES_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class ChildLimits:
    """Limits that a child sets on itself before it reads anything.

    memory_bytes: address space. processor_seconds: of its whole life; None for no limit.
    niceness: how far it stands behind the requests that the api answers.
    """

    memory_bytes: int
    processor_seconds: int | None
    niceness: int


def start_child(module: str, *, stdin: int | IO[bytes]) -> subprocess.Popen[bytes]:
    """Run a module of this package as a child; its answer comes from `stdout`.

    Raises OSError when no process can be started.
    """
    # -P: a folder that happens to be called `app` in the working directory is not meant.
    return subprocess.Popen(
        [sys.executable, "-P", "-m", module], stdin=stdin, stdout=subprocess.PIPE
    )


def limit_this_process(limits: ChildLimits) -> None:
    """Set the limits on the process that calls. A limit that the system lacks is left out."""
    # Ctrl-C goes to every process of the terminal; the api decides when its children end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(limits.niceness)
    wanted = {
        resource.RLIMIT_AS: limits.memory_bytes,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: _OPEN_FILES_MAX,
    }
    if limits.processor_seconds is not None:
        wanted[resource.RLIMIT_CPU] = limits.processor_seconds
    for kind, most in wanted.items():
        with suppress(OSError, ValueError):
            resource.setrlimit(kind, (most, most))
