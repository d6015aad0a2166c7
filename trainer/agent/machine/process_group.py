"""Processes of a trainer: start them in a group of their own, signal them, find and kill them all.

torchrun gives its ranks sessions of their own, so that a group is not enough: everything the
trainer starts carries two marks in its environment, and is found by walking /proc. Not here: what
is started (`trainer_command`) and when (`trainer_run`).
"""

from __future__ import annotations

import json
import os
import pwd
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from trainer.agent.machine.small_files import replace_file

MACHINE_MARK = "LOWTIDE_MACHINE_ID"
ATTEMPT_MARK = "LOWTIDE_ATTEMPT_ID"
KILL_ROUNDS_MAX = 50
KILL_ROUND_SECONDS = 0.1
ENVIRONMENT_BYTES_MAX = 1 << 20
PIPE_BYTES = 64 << 10


@dataclass(frozen=True)
class TrainerIdentity:
    """Enough to recognise a trainer that an earlier agent left: pid and its start time.

    container: the name of the one it runs in, "" for none.
    """

    pid: int
    start_ticks: int
    fence: int
    container: str = ""


def user_numbers(user: str) -> tuple[int, int]:
    """User and group of an OS user, who may be a bare number. Raises KeyError for an unknown name.

    A number needs no entry anywhere, and its group has the same.
    """
    if user.isascii() and user.isdigit():
        return int(user), int(user)
    entry = pwd.getpwnam(user)
    return entry.pw_uid, entry.pw_gid


def start_in_own_group(
    command: Sequence[str], environment: Mapping[str, str], folder: Path, user: str | None = None
) -> subprocess.Popen[bytes]:
    """Start a command as the leader of a new process group, output and errors in one pipe.

    user: run as this OS user (the agent must be root); None keeps the agent's own. Raises OSError,
    or KeyError for an unknown user.
    """
    switch: dict[str, object] = {}
    environment = dict(environment)
    if user is not None:
        entry = pwd.getpwnam(user)
        environment.update(HOME=entry.pw_dir, USER=user, LOGNAME=user)
        switch = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    return subprocess.Popen(  # type: ignore[call-overload,no-any-return]
        list(command),
        env=environment,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        process_group=0,
        **switch,
    )


def pump_output(process: subprocess.Popen[bytes], write: Callable[[bytes], None]) -> None:
    """Hand everything the process prints to `write`, until its last writer has closed the pipe."""
    if process.stdout is None:
        return
    with process.stdout as pipe:
        while content := os.read(pipe.fileno(), PIPE_BYTES):
            write(content)


def signal_group(group: int, number: signal.Signals) -> None:
    """Signal a group; one that is gone is no error."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return


def signal_all(pids: Sequence[int], number: signal.Signals) -> None:
    """Signal each of these processes; one that is gone is no error."""
    for pid in pids:
        _signal(pid, number)


def marked_processes(machine_id: str) -> list[int]:
    """Every process that a trainer or setup of this machine started, never the agent itself."""
    wanted = f"{MACHINE_MARK}={machine_id}".encode()
    attempt = f"{ATTEMPT_MARK}=".encode()
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            with Path(f"/proc/{entry}/environ").open("rb") as file:
                variables = file.read(ENVIRONMENT_BYTES_MAX).split(b"\0")
        except OSError:
            continue
        if wanted in variables and any(part.startswith(attempt) for part in variables):
            found.append(int(entry))
    return sorted(found)


def kill_all(machine_id: str, group: int | None = None) -> bool:
    """SIGKILL the group and every marked process until none is left; False after 5 s."""
    for _ in range(KILL_ROUNDS_MAX):
        if group is not None:
            signal_group(group, signal.SIGKILL)
        alive = [pid for pid in marked_processes(machine_id) if not is_dead(pid)]
        if not alive:
            return True
        for pid in alive:
            _signal(pid, signal.SIGKILL)
        time.sleep(KILL_ROUND_SECONDS)
    return False


def ask_for_stacks(machine_id: str) -> int:
    """SIGUSR1 to every marked process that handles it; one that does not would die of it.

    Returns how many were asked. Source: proc(5), SigCgt in /proc/<pid>/status.
    """
    asked = 0
    for pid in marked_processes(machine_id):
        if _catches(pid, signal.SIGUSR1):
            _signal(pid, signal.SIGUSR1)
            asked += 1
    return asked


def remember_trainer(path: Path, pid: int, fence: int, container: str = "") -> None:
    """Write down the running trainer for the next agent of this machine.

    On a disk that is full nothing is: the next agent finds the trainer by its mark, and only does
    not know which attempt it was.
    """
    identity = TrainerIdentity(pid, _start_ticks(pid) or 0, fence, container)
    if not replace_file(path, json.dumps(asdict(identity))):
        forget_trainer(path)  # another attempt's


def forget_trainer(path: Path) -> None:
    """The trainer ended and its end was seen."""
    with suppress(OSError):
        path.unlink(missing_ok=True)


def kill_earlier_trainer(
    path: Path, machine_id: str, end_containers: Callable[[], None]
) -> int | None:
    """Kill what an earlier agent left running; the fence of its trainer, or None.

    end_containers: called where the trainer ran in one.
    """
    try:
        identity = TrainerIdentity(**json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError):  # also one that was torn
        kill_all(machine_id)
        return None
    same = _start_ticks(identity.pid) == identity.start_ticks
    kill_all(machine_id, identity.pid if same else None)
    if identity.container:
        end_containers()
    forget_trainer(path)
    return identity.fence


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def _status_fields(pid: int) -> dict[str, str]:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return {}
    return dict(line.split(":", 1) for line in lines if ":" in line)


def is_dead(pid: int) -> bool:
    """True for a process that has ended, reaped or not."""
    return _status_fields(pid).get("State", "Z").strip()[:1] in ("Z", "X")


def _catches(pid: int, number: signal.Signals) -> bool:
    mask = _status_fields(pid).get("SigCgt", "0").strip()
    return bool(int(mask, 16) >> (number - 1) & 1)


def _start_ticks(pid: int) -> int | None:
    """Field 22 of /proc/<pid>/stat; the name in field 2 may hold spaces and parentheses."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return int(stat.rsplit(")", 1)[1].split()[19])
