"""Simulations in processes of their own, each on a fresh database: what sweeps are made of.

Lives here: one run with its time limit and how it ended. Not here: which runs there are (`sweep`,
and the mutants of tests), or the databases (`scratch_database`).
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from app.simulation.engine.scratch_database import ScratchDatabases
from app.simulation.runs.failure_report import BROKE

SOURCES = ("app", "trainer")
"""Folders that a simulation runs."""


class RunStatus(StrEnum):
    """How a run ended."""

    HELD = "held"  # every rule held
    BROKEN = "broken"  # a rule was broken, or the control plane raised
    CRASHED = "crashed"  # the simulation itself could not be run
    TIMED_OUT = "timed_out"


@dataclass(frozen=True)
class SeedResult:
    """How a run ended, and what it printed."""

    ending: RunStatus
    output: str


class SeedRuns:
    """Runs simulations; `stop` ends those that are under way. Safe to use from many threads."""

    def __init__(self, databases: ScratchDatabases) -> None:
        self._databases = databases
        self._running: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()
        self._stopping = False

    def run(self, tree: Path, arguments: Sequence[str], seconds_max: float) -> SeedResult:
        """`python -m app.simulation` with these arguments and the code of this source tree."""
        with self._databases.one() as url:
            command = [sys.executable, "-m", "app.simulation", *arguments, "--database", url]
            with self._lock:
                if self._stopping:
                    return SeedResult(RunStatus.CRASHED, "stopped")
                process = subprocess.Popen(
                    command,
                    cwd=tree,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    start_new_session=True,
                )
                self._running.add(process)
            try:
                output, _ = process.communicate(timeout=seconds_max)
            except subprocess.TimeoutExpired:
                _kill(process)
                output, _ = process.communicate()
                return SeedResult(RunStatus.TIMED_OUT, output)
            finally:
                with self._lock:
                    self._running.discard(process)
        if process.returncode == 0:
            return SeedResult(RunStatus.HELD, output)
        return SeedResult(RunStatus.BROKEN if BROKE in output else RunStatus.CRASHED, output)

    def stop(self) -> None:
        """End every run that is under way, and begin no other."""
        with self._lock:
            self._stopping = True
            for process in self._running:
                _kill(process)


def _kill(process: subprocess.Popen[str]) -> None:
    """It leads a session of its own, so its number is its group's."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)


def digest_of(root: Path, more: Iterable[Path] = ()) -> str:
    """What a result rests on: the sources of a tree, by path and content, and further files."""
    digest = hashlib.sha256()
    sources = [path for name in SOURCES for path in sorted((root / name).rglob("*.py"))]
    for path in [*sources, *more]:
        digest.update(f"{path.relative_to(root)}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
