"""Which OS user the jobs of a local machine run as: one number for each machine, owning no more.

The programs of Lowtide run as root then, the agents too; what a job starts does not, and so reads
neither their environment nor their files, nor those of another machine. The numbers need no entry
in /etc/passwd. Where it cannot be, `problem` says why: jobs then run as Lowtide's own user.
Not here: the switch itself (`enter_account`).
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from app.adapters.providers.local.machines.loopback_ports import block_number

_PROJECT_ROOT: Final = Path(__file__).parents[5]
_ENTER: Final = Path(__file__).with_name("enter_account.py")
_PROBE_SECONDS: Final = 30.0
_PROBE_MARK: Final = "LOWTIDE_PROBE"
# What every job's command needs: this very Python, what is installed for it, our own code, and a
# folder of its own.
_PROBE: Final = (
    "import importlib.util, os, sys\n"
    "assert importlib.util.find_spec('numpy') and importlib.util.find_spec('trainer')\n"
    "os.write(1, b'here')\n"
    "sys.stdin.read()\n"
)


@dataclass(frozen=True)
class JobAccounts:
    """first_uid: 0 where jobs run as Lowtide's own user, for the reason in `problem`."""

    first_uid: int
    problem: str = ""

    def uid_of(self, metadata_port: int) -> int:
        """A machine's number; no two machines of this host have one at the same time."""
        return self.first_uid + block_number(metadata_port)


def settle_accounts(folder: Path, first_uid: int) -> JobAccounts:
    """Try whether a job's command can run as another user; takes a tenth of a second, as root.

    folder: of the cloud; made to be entered by all (and listed by nobody) where it can.
    """
    if os.geteuid() != 0:
        return JobAccounts(0, "Lowtide does not run as root")
    if first_uid == 0:
        return JobAccounts(0, "LOWTIDE_LOCAL_FIRST_UID is 0")
    disk = folder
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o711)
        disk = Path(tempfile.mkdtemp(prefix="probe-", dir=folder))
        give_disk(disk, first_uid)
        problem = _try_account(disk, first_uid)
    except (OSError, subprocess.SubprocessError) as error:
        # On a full disk nothing can be tried, and nothing starts: no reason to share an account.
        full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        problem = "" if full else str(error)
    finally:
        if disk != folder:
            shutil.rmtree(disk, ignore_errors=True)
    return JobAccounts(0, problem) if problem else JobAccounts(first_uid)


def sharing_sentence(folder: Path, first_uid: int) -> str | None:
    """What people are told where jobs run as Lowtide's own user; None where they do not."""
    problem = settle_accounts(folder, first_uid).problem
    if not problem:
        return None
    return (
        "jobs on local machines run as Lowtide's own user and can read its keys and passwords: "
        f"run none here that you do not trust, or see docs/local.md ({problem})"
    )


def give_disk(disk: Path, uid: int) -> None:
    """Let the number enter the folder, which stays root's; nobody else may. Raises OSError."""
    os.chown(disk, 0, uid)
    disk.chmod(0o750)


def entering_command(uid: int, disk: Path) -> list[str]:
    """What stands before a command to run it as the number, with `disk` in sight."""
    needed = {Path(sys.base_prefix), Path(sys.prefix), _PROJECT_ROOT}
    needed |= {Path(each) for each in sys.path if each and Path(each).is_dir()}
    needed |= {path.resolve() for path in needed}
    shown: dict[str, list[str]] = {}
    for path in sorted({*needed, disk}):
        closed = closed_folder(path)
        if closed is None:
            continue
        beside = shown.setdefault(str(closed), [])
        if not any(path.is_relative_to(other) for other in beside):
            beside.append(str(path))
    return [sys.executable, "-I", "-S", str(_ENTER), str(uid), json.dumps(shown)]


def closed_folder(path: Path) -> Path | None:
    """The first folder on the way to `path` that not everybody may enter; None for an open way."""
    for parent in reversed(path.parents):
        if not parent.stat().st_mode & stat.S_IXOTH:
            return parent
    return None


def _try_account(disk: Path, uid: int) -> str:
    """ "" when it works; else what is in the way and what to do."""
    home = disk / "home"
    home.mkdir(mode=0o700)
    os.chown(home, uid, uid)
    child = subprocess.Popen(
        [*entering_command(uid, disk), sys.executable, "-c", _PROBE],
        cwd=home,
        env={"PYTHONPATH": str(_PROJECT_ROOT), "HOME": str(home), _PROBE_MARK: "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        here = child.stdout.read(4) if child.stdout is not None else b""
        marked = here == b"here" and _shows_mark(child.pid)
        _, said = child.communicate(timeout=_PROBE_SECONDS)
    finally:
        child.kill()
        child.wait()
    if here == b"here" and not marked:
        return (
            "root here may not see other users' processes (it lacks CAP_SYS_PTRACE), and could "
            "not end a job; give the container that capability"
        )
    if child.returncode != 0 or here != b"here":
        lines = said.decode("utf-8", "replace").strip().splitlines()
        places = (Path(sys.executable), Path(sys.executable).resolve(), _PROJECT_ROOT, disk)
        closed = sorted({str(found) for found in map(closed_folder, places) if found})
        do = f"; let all users enter {' and '.join(closed)} (chmod o+x)" if closed else ""
        return f"another user cannot run {sys.executable} ({lines[-1] if lines else 'no word'}){do}"
    return ""


def _shows_mark(pid: int) -> bool:
    try:
        return _PROBE_MARK in psutil.Process(pid).environ()
    except psutil.Error:
        return False
