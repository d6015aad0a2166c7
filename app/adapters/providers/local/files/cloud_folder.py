"""The files by which a local cloud and its callers find each other in a folder.

`cloud.address` names the control socket; `cloud.lock` is held by the one daemon of the folder and
contains its pid. Not here: what is said over the socket.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from pathlib import Path
from typing import Final

from app.adapters.providers.local.files.durable_files import replace_durably

DAEMON: Final = "app.adapters.providers.local.server.cloud"
DAEMON_LOCK: Final = "cloud.lock"
LOG_FILE: Final = "cloud.log"
_ADDRESS: Final = "cloud.address"
_SOCKET: Final = "cloud.sock"
# The kernel takes 108 bytes with the closing zero.
_ADDRESS_BYTES_MAX: Final = 100


def prepare_folder(folder: Path) -> None:
    """Create the folder, readable by its owner alone: machines' secrets pass through it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def read_address(folder: Path) -> str | None:
    """The control socket's path; None when no daemon was ever here."""
    try:
        return (folder / _ADDRESS).read_text("utf-8").strip() or None
    except FileNotFoundError:
        return None


def new_address(folder: Path) -> str:
    """A free socket path: in the folder, or in a short private one when its path is too long."""
    known = read_address(folder)
    path = str(folder / _SOCKET)
    if len(os.fsencode(path)) > _ADDRESS_BYTES_MAX:
        path = _known_short_path(known) or str(Path(tempfile.mkdtemp(prefix="lowtide-")) / _SOCKET)
    Path(path).unlink(missing_ok=True)
    if path != known:
        replace_durably(folder / _ADDRESS, path + "\n")
    return path


def forget_address(folder: Path) -> None:
    """Remove the socket, and its private folder when it had one."""
    known = read_address(folder)
    if known is None:
        return
    Path(known).unlink(missing_ok=True)
    if Path(known).parent != folder and _known_short_path(known):
        Path(known).parent.rmdir()
    (folder / _ADDRESS).unlink(missing_ok=True)


def try_lock(path: Path) -> int | None:
    """An exclusive lock as an open descriptor that holds it until closed; None when it is held."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    return handle


def _known_short_path(known: str | None) -> str | None:
    """The recorded path, if its folder is still ours alone."""
    if known is None:
        return None
    try:
        found = Path(known).parent.lstat()
    except FileNotFoundError:
        return None
    private = found.st_uid == os.getuid() and found.st_mode & 0o777 == 0o700
    return known if private else None
