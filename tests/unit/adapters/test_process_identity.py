"""What tells one process from a later one with its pid."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from app.adapters.embedded.processes.process_identity import command_mentions, identify, start_token


def test_a_start_token_is_what_earlier_releases_stored() -> None:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    for pid in (os.getpid(), os.getppid()):
        # Field 22 of proc(5); the name in field 2 may hold spaces and brackets.
        ticks = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[19]
        assert start_token(pid) == f"{boot}:{ticks}"


def test_a_zombie_is_not_alive_and_nobody_is_nobody() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); input()", "a word"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    child.stdout.readline()  # for an instant after its start a process has no command line
    identity = identify(child.pid)
    assert identity is not None
    assert identity.is_alive()
    assert command_mentions(child.pid, Path(sys.executable).name, "a word")
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not identity.is_alive()
    child.communicate()
    assert not identity.is_alive()
    assert [start_token(pid) for pid in (child.pid, -1)] == [None, None]


def test_a_clock_that_is_set_between_two_readings_makes_no_other_process(
    monkeypatch: pytest.MonkeyPatch,
):
    before, real = start_token(os.getpid()), psutil.boot_time()
    readings = iter([real])
    monkeypatch.setattr("psutil._pslinux.boot_time", lambda: next(readings, real + 5))
    assert start_token(os.getpid()) == before
