"""The OS users of local machines' jobs: where they can be had, and what is said where not.

Real processes as root, some with a capability less. Not here: what a real job can then read
(tests/e2e/test_local_secrets.py).
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.adapters.providers.local.machines.job_accounts import (
    closed_folder,
    entering_command,
    give_disk,
    settle_accounts,
    sharing_sentence,
)
from app.adapters.providers.local.machines.job_python import make_python
from tests.support.disks.small_disk import small_disk
from tests.support.servers.finished_commands import run_command
from tests.support.servers.postgres import fast_folder

FIRST = 60_578
_CAP_SYS_PTRACE, _CAP_SYS_ADMIN, _DROP = 19, 21, 24
SETTLE = (
    "import pathlib, sys;"
    "from app.adapters.providers.local.machines.job_accounts import settle_accounts;"
    "print(settle_accounts(pathlib.Path(sys.argv[1]), 60578).problem)"
)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every user may enter."""
    with fast_folder() as found:
        yield found


SEE = (
    "import pathlib, subprocess;"
    "child = subprocess.Popen('read x', shell=True, stdin=-1, stdout=-1, user=60578, env="
    "{'PATH': '/bin'});"
    "environ = pathlib.Path(f'/proc/{child.pid}/environ');"
    "print(environ.read_text()); child.kill()"
)


def run_without(capability: int, program: str, argument: str) -> str:
    """What a program of ours says as root that lacks a capability."""
    libc = ctypes.CDLL(None)
    ran = run_command(
        [sys.executable, "-c", program, argument],
        timeout=60,
        preexec_fn=lambda: libc.prctl(_DROP, capability, 0, 0, 0),
    )
    return ran.stdout.strip()


def test_root_can_give_each_machine_a_user_of_its_own(folder: Path):
    accounts = settle_accounts(folder / "cloud", FIRST)
    assert accounts.problem == ""
    numbers = {accounts.uid_of(20_000 + 21 * block) for block in range(571)}
    assert (min(numbers), max(numbers), len(numbers)) == (FIRST, FIRST + 570, 571)
    assert (folder / "cloud").stat().st_mode & 0o777 == 0o711
    assert list((folder / "cloud").iterdir()) == []


def test_who_is_not_root_or_wants_none_is_told_so(folder: Path):
    assert "LOWTIDE_LOCAL_FIRST_UID" in settle_accounts(folder / "cloud", 0).problem
    child = os.fork()
    if child == 0:
        os.setresuid(FIRST, FIRST, FIRST)
        told = sharing_sentence(folder / "cloud", FIRST) or ""
        os._exit(0 if "does not run as root" in told and "docs/local.md" in told else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_root_that_cannot_see_a_jobs_processes_keeps_them_its_own(folder: Path):
    # Not every kernel asks for the capability.
    sees = run_without(_CAP_SYS_PTRACE, SEE, "").startswith("PATH=")
    told = run_without(_CAP_SYS_PTRACE, SETTLE, str(folder))
    assert ("CAP_SYS_PTRACE" in told, told == "") == (not sees, sees)


def test_without_mounts_a_closed_way_is_named_with_what_to_do(folder: Path):
    shut = folder / "shut"
    (shut / "state").mkdir(parents=True)
    shut.chmod(0o700)
    assert settle_accounts(shut / "state/cloud", FIRST).problem == ""
    told = run_without(_CAP_SYS_ADMIN, SETTLE, str(shut / "state/cloud"))
    assert "unshare: Operation not permitted" in told
    assert str(shut) in told
    assert "chmod o+x" in told


def test_a_full_disk_is_no_reason_to_share_an_account(folder: Path):
    with small_disk(folder / "small", 64) as disk:
        cloud = disk.folder / "cloud"
        cloud.mkdir()
        disk.fill()
        assert settle_accounts(cloud, FIRST).first_uid == FIRST
        # Folders take no room there. Without inodes (its root, what fills it, the cloud's folder
        # are there) the probe's folder cannot be made.
        remount = ["mount", "-o", "remount,nr_inodes=3", str(disk.folder)]
        subprocess.run(remount, check=True, timeout=60)
        with pytest.raises(OSError, match="No space left"):
            (cloud / "more").mkdir()
        assert settle_accounts(cloud, FIRST).first_uid == FIRST
        assert list(cloud.iterdir()) == []


def test_a_command_sees_of_a_closed_folder_only_what_it_needs(folder: Path):
    shut = folder / "shut"
    disk = shut / "disk"
    disk.mkdir(parents=True)
    (shut / "secret").write_text("a key")
    shut.chmod(0o700)
    give_disk(disk, FIRST)
    assert closed_folder(disk) == shut
    assert (disk.stat().st_mode & 0o777, disk.stat().st_uid, disk.stat().st_gid) == (
        0o750,
        0,
        FIRST,
    )
    look = (
        "import json, os, pathlib;"
        "told = pathlib.Path('/proc/self/status').read_text().split();"
        "ids = [*os.getresuid(), *os.getresgid()];"
        "no_new = told[told.index('NoNewPrivs:') + 1];"
        "found = [os.path.exists('../secret'), ids, os.getgroups(), no_new];"
        "print(json.dumps(found))"
    )
    ran = run_command(
        [*entering_command(FIRST, disk), sys.executable, "-c", look],
        timeout=60,
        cwd=disk,
        check=True,
        extra_groups=[0, 4],
    )
    assert json.loads(ran.stdout) == [False, [FIRST] * 6, [], "1"]
    assert (shut / "secret").read_text() == "a key"


@pytest.mark.full
def test_what_setup_installs_stays_on_its_machine(folder: Path):
    disk = folder / "disk"
    disk.mkdir()
    give_disk(disk, FIRST)
    own = make_python(disk, FIRST)
    assert own is not None
    assert own == make_python(disk, FIRST)
    wheel = folder / "brought_along-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as packed:
        packed.writestr("brought_along.py", "VALUE = 7")
        about = "brought_along-1.0.dist-info"
        named = "Metadata-Version: 2.1\nName: brought-along\nVersion: 1.0\n"
        packed.writestr(f"{about}/METADATA", named)
        packed.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        packed.writestr(f"{about}/RECORD", "")
    wheel.chmod(0o644)
    command = (
        f"pip install --no-index --no-deps --quiet {wheel} && pip check | tail -1 && "
        "python -c 'import brought_along, numpy, app; print(brought_along.VALUE)'"
    )
    ran = run_command(
        [*entering_command(FIRST, disk), "/bin/sh", "-c", command],
        timeout=120,
        cwd=disk,
        env={"PATH": f"{own}:/usr/bin:/bin", "HOME": str(disk)},
    )
    assert ran.stdout.splitlines()[-1:] == ["7"], ran.stderr
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("brought_along")
