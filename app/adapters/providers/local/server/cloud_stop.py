"""Ending a local cloud for good, whatever state its daemon is in, and mending its files before it
runs again.

Stop whoever may call the cloud first: a call would start it again.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import psutil

from app.adapters.providers.local.cloud_client import NotConnected, call_once
from app.adapters.providers.local.files.cloud_folder import (
    DAEMON,
    DAEMON_LOCK,
    forget_address,
    try_lock,
)
from app.adapters.providers.local.files.cloud_settings import CloudTerms, LocalSettings, read_terms
from app.adapters.providers.local.server.journal import Journal
from app.adapters.providers.local.server.local_cloud import LocalCloud
from app.ports.cloud_provider import ProviderError

_PAUSE_SECONDS: Final = 0.02
_LEAVE_SECONDS: Final = 5.0
_LAST_SIGNALS: Final = ((signal.SIGTERM, 1.0), (signal.SIGKILL, _LEAVE_SECONDS))


def repair_cloud(folder: Path) -> tuple[str, ...]:
    """Mend the journal of a cloud whose daemon does not run; what was mended, a sentence each.

    A daemon that runs has read its journal already, and writes it anew when it ends.
    """
    folder = folder.absolute()
    if not folder.is_dir() or (lock := try_lock(folder / DAEMON_LOCK)) is None:
        return ()
    try:
        journal = Journal(folder)
        journal.close()
    finally:
        os.close(lock)
    return tuple(journal.repairs)


def stop_cloud(
    folder: Path, timeout_seconds: float, say: Callable[[str], None] = lambda _sentence: None
) -> int:
    """End every machine of the folder's cloud as given back by us, then its daemon.

    Returns how many machines could not be cleared within the time: 0 unless a process survived
    SIGKILL. Nothing happens where no cloud ever was. A daemon that does not answer is killed, and
    its work done here. say: is told what was mended. Raises TimeoutError when even that daemon does
    not go, TermsUnreadable as `read_terms`.
    """
    folder = folder.absolute()
    terms = read_terms(folder)
    if terms is None:
        return 0
    try:
        left = int(call_once(folder, "stop", {}, timeout_seconds)["still_there"])
    except (NotConnected, ProviderError):
        return _stop_without_daemon(folder, terms, timeout_seconds, say)
    os.close(_lock_of_gone_daemon(folder))
    return left


def _stop_without_daemon(
    folder: Path, terms: CloudTerms, timeout_seconds: float, say: Callable[[str], None]
) -> int:
    _kill_daemon(folder)
    lock = _lock_of_gone_daemon(folder)
    try:
        left = asyncio.run(_end_all(folder, terms, timeout_seconds, say))
        forget_address(folder)
    finally:
        os.close(lock)
    return left


async def _end_all(
    folder: Path, terms: CloudTerms, timeout_seconds: float, say: Callable[[str], None]
) -> int:
    cloud = LocalCloud(folder, LocalSettings(), terms)
    for sentence in cloud.repairs:
        say(sentence)
    await cloud.end_strays()
    return await cloud.stop(timeout_seconds)


def _kill_daemon(folder: Path) -> None:
    """SIGKILL the folder's daemon."""
    _signal_daemons(folder, signal.SIGKILL)


def _signal_daemons(folder: Path, number: int) -> list[int]:
    """Send a signal to the folder's daemons; the pids of those that were there to get it.

    They are known by their command: a full disk may have kept the pid out of the lock file.
    """
    found = []
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
            if DAEMON in words and str(folder) in words:
                process.send_signal(number)
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def _lock_of_gone_daemon(folder: Path) -> int:
    """The daemon's lock, once it has left it: nobody can start another while we hold it.

    Its work is done by now, so a daemon that stays gets SIGTERM, then SIGKILL. Raises
    TimeoutError, with what to do, when the lock is held even then.
    """
    lock = _await_lock(folder, _LEAVE_SECONDS)
    for number, seconds in _LAST_SIGNALS:
        if lock is not None:
            return lock
        if _signal_daemons(folder, number):
            lock = _await_lock(folder, seconds)
    if lock is not None:
        return lock
    raise TimeoutError(_still_held(folder, _signal_daemons(folder, 0)))


def _await_lock(folder: Path, seconds: float) -> int | None:
    """The daemon's lock, None when it is still held after so many seconds."""
    ends = time.monotonic() + seconds
    while (lock := try_lock(folder / DAEMON_LOCK)) is None:
        if time.monotonic() >= ends:
            return None
        time.sleep(_PAUSE_SECONDS)
    return lock


def _still_held(folder: Path, daemons: list[int]) -> str:
    """Who is in the way, and what to do about it."""
    again = "then run `lowtide down` again"
    if daemons:
        pids = " ".join(map(str, daemons))
        return (
            f"the local cloud in {folder} does not end: its process (pid {pids}) is still there "
            "after SIGKILL; wait until the disk that it waits for answers, or restart this "
            f"machine, {again}"
        )
    return (
        f"the local cloud in {folder} does not end: another process holds {folder / DAEMON_LOCK}; "
        f"find it with `fuser {folder / DAEMON_LOCK}`, end it with `kill PID`, {again}"
    )
