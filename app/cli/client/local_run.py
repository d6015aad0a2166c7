"""What a `lowtide up` of a state folder is doing now, in a sentence with what to do next.

Lives here: starting, running, stopping, or gone without having stopped its programs. Not here: the
record that it is read from (`embedded.processes.run_record`), or the table of `lowtide status`.
"""

from __future__ import annotations

import http.client
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from app.adapters.system_clock import steady_seconds
from app.cli.client.failures import UNREACHABLE, CommandFailed
from app.domain.units.durations import format_duration
from app.settings import load_settings

if TYPE_CHECKING:
    from app.adapters.embedded.processes.run_record import RunningProcess

ADDRESS_FILE: Final = "server_url"
PROGRAM_ARGUMENTS: Final = {
    "api": ("uvicorn", "app.api.main:app"),
    "worker": ("workers.entrypoints", "worker"),
    "beat": ("workers.entrypoints", "beat"),
}
"""What follows `python -m`: by it a program is known for ours where nothing was written down."""
_ADDRESS_BYTES_MAX: Final = 4_096
_PROBE_SECONDS: Final = 2.0
_START_WAIT_SECONDS: Final = 3.0
_START_POLL_SECONDS: Final = 0.1


class RunPhase(StrEnum):
    """What `lowtide up` is doing. In the JSON of `lowtide status`; never rename one."""

    NOTHING = "nothing"
    BUSY = "busy"  # a `down` has the folder, or an `up` that does not say which of them it is
    STARTING = "starting"
    RUNNING = "running"
    INCOMPLETE = "incomplete"  # it runs, and one of its programs does not
    STOPPING = "stopping"
    KILLED = "killed"  # it is gone, and has not stopped its programs


@dataclass(frozen=True)
class LocalRun:
    """One look at a state folder. sentence: what is so; remedy: what to do, empty when nothing."""

    phase: RunPhase
    programs: Sequence[RunningProcess] = ()
    address: str | None = None
    sentence: str = ""
    remedy: str = ""

    @property
    def needs_a_remedy(self) -> bool:
        """Whether something runs, or ran, that is not as it should be."""
        return self.phase not in (RunPhase.NOTHING, RunPhase.RUNNING)


def command_on(verb: str, folder: Path) -> str:
    """`lowtide up`, and so on, as it is typed here to mean the state folder."""
    if folder == load_settings().state_dir:
        return f"lowtide {verb}"
    return f"lowtide {verb} --state-dir {shlex.quote(str(folder))}"


def look_at_run(folder: Path) -> LocalRun:
    """What runs from the folder; asks the api only where its supervisor is gone."""
    from app.adapters.embedded.processes import run_record, state_folder

    programs = run_record.describe_running(folder)
    supervisor = next((one for one in programs if one.name == run_record.SUPERVISOR_NAME), None)
    if supervisor is None or not supervisor.alive:
        if (holder := state_folder.lock_holder(folder)) is not None:
            if holder.starts:
                return _starting(holder.pid, programs, holder.seconds, "preparing the state folder")
            sentence = f"another lowtide (pid {holder.pid}) is stopping programs in {folder}"
            return LocalRun(RunPhase.BUSY, programs, None, sentence, "wait until it is done")
        if supervisor is None:
            return LocalRun(RunPhase.NOTHING)
        return _killed(folder, supervisor, programs)
    up = f"`lowtide up` (pid {supervisor.pid})"
    if run_record.is_stopping(folder):
        remedy = f"wait until it has ended, then run `{command_on('up', folder)}` again"
        return LocalRun(RunPhase.STOPPING, programs, None, f"{up} is stopping", remedy)
    address, step = read_address(folder), run_record.start_step(folder)
    if address is None or step is not None:
        # An address written down before this start is that of an earlier run.
        return _starting(supervisor.pid, programs, supervisor.uptime_seconds or 0.0, step)
    alive = {one.name for one in programs if one.alive}
    missing = [name for name in PROGRAM_ARGUMENTS if name not in alive]
    missing += [one.name for one in programs if not one.alive and one.name not in missing]
    if missing:
        sentence = f"{up} runs; it is starting {' and '.join(missing)} again"
        remedy = f"wait a moment; if it stays so, read {folder / 'logs' / missing[0]}.log"
        return LocalRun(RunPhase.INCOMPLETE, programs, address, sentence, remedy)
    return LocalRun(RunPhase.RUNNING, programs, address, f"{up} runs; the api is at {address}")


def is_starting(folder: Path) -> bool:
    """Whether a `lowtide up` of the folder is not ready yet; not of a folder that is shut to us."""
    try:
        return look_at_run(folder).phase is RunPhase.STARTING
    except OSError:
        return False


def wait_for_start(folder: Path) -> LocalRun:
    """What runs from the folder; of a `lowtide up` that is starting, after some seconds at most.

    Raises CommandFailed where it is still starting then.
    """
    deadline = steady_seconds() + _START_WAIT_SECONDS
    while (run := look_at_run(folder)).phase is RunPhase.STARTING:
        if steady_seconds() >= deadline:
            raise still_starting(run)
        time.sleep(_START_POLL_SECONDS)
    return run


def still_starting(run: LocalRun) -> CommandFailed:
    """How every command ends that needs a `lowtide up` which is not ready yet."""
    return CommandFailed(f"{run.sentence}; {run.remedy}", UNREACHABLE)


def _starting(
    pid: int, programs: Sequence[RunningProcess], seconds: float, stage: str | None
) -> LocalRun:
    at = f"for {format_duration(seconds)}" + (f", {stage}" if stage else "")
    sentence = f"`lowtide up` (pid {pid}) is still starting ({at})"
    return LocalRun(RunPhase.STARTING, programs, None, sentence, "try again in a moment")


def _killed(
    folder: Path, supervisor: RunningProcess, programs: Sequence[RunningProcess]
) -> LocalRun:
    address, again = read_address(folder), f"run `{command_on('up', folder)}` again"
    ended = (
        f"`lowtide up` (pid {supervisor.pid}) was killed, or this machine was restarted, before it "
        "could stop its programs"
    )
    left = [one.name for one in programs if one.alive]
    if not left:
        sentence = f"{ended}; none of them runs any more"
        return LocalRun(
            RunPhase.KILLED, programs, address, sentence, f"{again}: it resumes from here"
        )
    sentence = f"{ended}. Still running, and watched by nobody: {', '.join(left)}"
    if address is not None:
        verb = "still answers" if api_answers(address, "/healthz") else "does not answer"
        sentence += f"; the api at {address} {verb}"
    down = command_on("down", folder)
    remedy = f"{again}: it stops what is left and resumes. `{down}` only stops it"
    return LocalRun(RunPhase.KILLED, programs, address, sentence, remedy)


def read_address(state_dir: Path) -> str | None:
    """Where the api of `lowtide up` answers, without a slash at its end.

    None while it does not, and where the file is another user's or holds something else.
    """
    try:
        with (state_dir / ADDRESS_FILE).open(encoding="ascii") as file:
            return file.read(_ADDRESS_BYTES_MAX).strip().rstrip("/") or None
    except (OSError, UnicodeError):  # damaged: the next `up` writes it anew
        return None


def api_answers(address: str, path: str) -> bool:
    """Whether the api at the address answers its probe at `path` with 200, within two seconds."""
    try:
        parts = urlsplit(address)
        port = parts.port or 80
    except ValueError:
        return False
    connection = http.client.HTTPConnection(parts.hostname or "", port, timeout=_PROBE_SECONDS)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
