"""What a supervisor must know about one process it starts.

Not here: the supervising itself.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from app.adapters.embedded.processes.server_account import ServerAccount


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """One process to start and keep.

    `argv` may be a function: it is then called before every start, to prepare files and to give
    the command for that start. `env` None means the supervisor's own. `ready` None means ready
    once started. With `restart` False the process may end by itself, and is then left alone.
    `echo` False keeps its output off the terminal (its log file gets it all the same); so do
    entries that match `unechoed`, with their further lines. `account` is whom to run as (only root
    can choose).
    """

    name: str
    argv: Sequence[str] | Callable[[], Sequence[str]]
    env: Mapping[str, str] | None = None
    ready: Callable[[], bool] | None = None
    restart: bool = True
    echo: bool = True
    unechoed: re.Pattern[bytes] | None = None
    stop_signal: int = signal.SIGTERM
    stop_timeout_seconds: float = 10.0
    ready_timeout_seconds: float = 30.0
    account: ServerAccount | None = None
    cwd: Path | None = None

    def command(self) -> list[str]:
        """The command for the next start."""
        return list(self.argv() if callable(self.argv) else self.argv)
