"""The record of what runs from a state folder (run.json), and what others may do with it.

Here: `lowtide status` and `lowtide down`, and the removal of processes whose supervisor was
killed. Not here: supervising.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType

from app.adapters.embedded.processes import process_identity, state_folder
from app.adapters.embedded.processes.process_identity import ProcessIdentity
from app.adapters.embedded.processes.process_stopping import StopTarget, stop_processes

SUPERVISOR_NAME = "lowtide"
Commands = Mapping[str, Sequence[str]]
NO_COMMANDS: Commands = MappingProxyType({})
_RECORD = "run.json"
_LEFT_OVER_TIMEOUT_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class RecordedProcess:
    """One process as written down when it started; `stage` counts the groups of a start."""

    name: str
    pid: int
    start_token: str
    started_at: str
    stop_signal: int
    stop_timeout_seconds: float
    stage: int

    @property
    def identity(self) -> ProcessIdentity:
        """Which process is meant, whatever has its pid now."""
        return ProcessIdentity(self.pid, self.start_token)


@dataclass(frozen=True, slots=True)
class RunningProcess:
    """One line of `lowtide status`; `uptime_seconds` is None when it is not alive."""

    name: str
    pid: int
    alive: bool
    uptime_seconds: float | None


def record_now(
    name: str, pid: int, *, stop_signal: int, stop_timeout_seconds: float, stage: int
) -> RecordedProcess:
    """What to write down about a process that has just started."""
    return RecordedProcess(
        name=name,
        pid=pid,
        # A process that is gone already has no token; the empty one matches nothing.
        start_token=process_identity.start_token(pid) or "",
        started_at=datetime.now(UTC).isoformat(),
        stop_signal=int(stop_signal),
        stop_timeout_seconds=stop_timeout_seconds,
        stage=stage,
    )


def record_supervisor() -> RecordedProcess:
    """What to write down about this very process."""
    return record_now(
        SUPERVISOR_NAME,
        os.getpid(),
        stop_signal=signal.SIGTERM,
        stop_timeout_seconds=_LEFT_OVER_TIMEOUT_SECONDS,
        stage=0,
    )


def write_record(
    state_dir: Path,
    processes: Sequence[RecordedProcess],
    *,
    stopping: bool = False,
    start_step: str | None = None,
) -> None:
    """Replace the record; the supervisor comes first.

    stopping: it stops what it has started. start_step: what it does until it is ready, for people.
    """
    content = {
        "processes": [asdict(process) for process in processes],
        "stopping": stopping,
        "start_step": start_step,
    }
    text = json.dumps(content, indent=1)
    state_folder.write_atomically(state_dir / _RECORD, text + "\n", 0o644)


def remove_record(state_dir: Path) -> None:
    """Forget the run, after everything in it has been stopped."""
    (state_dir / _RECORD).unlink(missing_ok=True)


def describe_running(state_dir: Path) -> list[RunningProcess]:
    """The recorded processes, supervisor first; empty when nothing was left running."""
    now = datetime.now(UTC)
    described = []
    for process in _read_record(state_dir):
        alive = process.identity.is_alive()
        uptime = (now - datetime.fromisoformat(process.started_at)).total_seconds()
        described.append(
            RunningProcess(process.name, process.pid, alive, max(0.0, uptime) if alive else None)
        )
    return described


def is_stopping(state_dir: Path) -> bool:
    """Whether the recorded supervisor had begun to stop its processes."""
    content = state_folder.read_json(state_dir / _RECORD)
    return isinstance(content, dict) and content.get("stopping") is True


def start_step(state_dir: Path) -> str | None:
    """What the recorded supervisor does until it is ready; None when it is, or never said so."""
    content = state_folder.read_json(state_dir / _RECORD)
    step = content.get("start_step") if isinstance(content, dict) else None
    return step if isinstance(step, str) else None


def stop_running(
    state_dir: Path, timeout_seconds: float = 30.0, commands: Commands = NO_COMMANDS
) -> list[str]:
    """Stop what runs from `state_dir` and return the names of what was alive; safe to repeat.

    A live supervisor is asked to stop and has `timeout_seconds` for it; then it is killed and its
    processes are stopped from here. commands: as in `stop_left_overs`. Raises StateFolderBusyError
    when another `up` has just begun.
    """
    processes = _read_record(state_dir)
    was_alive = [process.name for process in processes if process.identity.is_alive()]
    supervisors = [process for process in processes if process.name == SUPERVISOR_NAME]
    stop_processes(
        [
            # In `lowtide up | tee log`, tee is in the supervisor's group.
            StopTarget(p.name, p.identity, signal.SIGTERM, timeout_seconds, whole_group=False)
            for p in supervisors
        ]
    )
    if state_dir.is_dir():
        with state_folder.up_lock(state_dir, starts=False):
            stopped = stop_left_overs(state_dir, commands)
            was_alive += [name for name in stopped if name not in was_alive]
    return was_alive


def stop_left_overs(state_dir: Path, commands: Commands = NO_COMMANDS) -> list[str]:
    """Stop the processes of a supervisor that is gone, last stage first; the caller has the lock.

    commands: arguments by which a program is known that started and was not written down, because
    its supervisor was killed just then or the disk was full. Returns the names of those alive.
    """
    unrecorded = _stop_unrecorded(state_dir, commands)
    children = [p for p in _read_record(state_dir) if p.name != SUPERVISOR_NAME]
    alive = [process for process in children if process.identity.is_alive()]
    for stage in sorted({process.stage for process in alive}, reverse=True):
        stop_processes(
            [
                StopTarget(p.name, p.identity, p.stop_signal, p.stop_timeout_seconds)
                for p in reversed(alive)
                if p.stage == stage
            ]
        )
    remove_record(state_dir)
    return [*(process.name for process in alive), *unrecorded]


def _stop_unrecorded(state_dir: Path, commands: Commands) -> list[str]:
    recorded = {process.identity for process in _read_record(state_dir)}
    found = [
        StopTarget(name, identity, signal.SIGTERM, _LEFT_OVER_TIMEOUT_SECONDS)
        for name, words in commands.items()
        for identity in process_identity.session_leaders_in(state_dir, words)
        if identity not in recorded
    ]
    stop_processes(found)
    return [target.name for target in found]


def _read_record(state_dir: Path) -> list[RecordedProcess]:
    content = state_folder.read_json(state_dir / _RECORD)
    try:
        return [RecordedProcess(**entry) for entry in content["processes"]]
    except (TypeError, KeyError):
        # Missing, cut short, or written by another version: nothing that we may signal.
        return []
