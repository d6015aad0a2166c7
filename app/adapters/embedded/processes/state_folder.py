"""The state folder of `lowtide up`: its locks, secrets, remembered ports and log files.

Not here: where the servers keep their data (see `server_account`) or what the processes are.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import secrets
import shlex
import socket
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.adapters.embedded.embedded_errors import (
    EmbeddedServerError,
    StateFolderBusyError,
    StateFolderUnusableError,
)
from app.adapters.embedded.processes import process_identity
from app.domain.units.durations import measured_duration

_UP_LOCK = "up.lock"
_STARTS, _STOPS = "starts", "stops"
_ANOTHER = "name another with --state-dir or LOWTIDE_STATE_DIR"
_LOCK_POLL_SECONDS = 0.05
# Below the ports that Linux and macOS hand out to outgoing connections, so that a remembered
# port is seldom taken by chance while its server is down.
_FIRST_PORT, _PORT_SPAN, _PORT_TRIES = 20_000, 12_000, 400


def open_state_folder(state_dir: Path) -> Path:
    """Make `state_dir` when missing and return it absolute.

    Made by root it may be entered (not listed) by the server account; every secret in it is 0600.
    Raises StateFolderUnusableError.
    """
    folder = state_dir.expanduser().absolute()
    try:
        if not folder.exists():
            folder.mkdir(parents=True)
            folder.chmod(0o711 if os.geteuid() == 0 else 0o700)
    except OSError as error:
        raise StateFolderUnusableError(
            f"the state folder {folder} cannot be made ({_reason(error)}); {_ANOTHER}"
        ) from error
    if not folder.is_dir():
        raise StateFolderUnusableError(f"the state folder {folder} is not a folder; {_ANOTHER}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise StateFolderUnusableError(
            f"the state folder {folder} cannot be written in by this user; {_ANOTHER}"
        )
    return folder.resolve()


def require_possible_folder(state_dir: Path) -> None:
    """Check that the folder exists or could be made, without making it.

    Raises:
        StateFolderUnusableError: something else has its name, or no folder can be made there.
    """
    folder = state_dir.expanduser().absolute()
    try:
        there = next(place for place in (folder, *folder.parents) if place.exists())
        if there != folder:
            # Permissions do not show it: /proc and the like refuse a folder to root too.
            Path(tempfile.mkdtemp(prefix=".lowtide-", dir=there)).rmdir()
            return
    except OSError as error:
        raise StateFolderUnusableError(
            f"the state folder {folder} cannot be made ({_reason(error)}); {_ANOTHER}"
        ) from error
    if not folder.is_dir():
        raise StateFolderUnusableError(f"the state folder {folder} is not a folder; {_ANOTHER}")


def _reason(error: OSError) -> str:
    """The system's word; of /proc and the like it is not the one that people expect."""
    if isinstance(error, FileNotFoundError):
        return "no folder can be made there"
    return error.strerror or type(error).__name__


@dataclass(frozen=True, slots=True)
class LockHolder:
    """Who holds the folder: its pid, whether it starts programs (`up`) or only stops them
    (`down`), and for how long it has held it.
    """

    pid: int
    starts: bool
    seconds: float


@contextlib.contextmanager
def up_lock(state_dir: Path, *, starts: bool = True) -> Iterator[None]:
    """Hold the folder for one `lowtide up`; StateFolderBusyError when another holds it.

    starts: False where programs are only stopped, as by `lowtide down`.
    """
    with (state_dir / _UP_LOCK).open("a+", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            lock.seek(0)
            holder = lock.readline().strip()
            raise StateFolderBusyError(
                f"another lowtide (pid {holder or 'unknown'}) is running from {state_dir}; "
                f"stop it with `lowtide down --state-dir {shlex.quote(str(state_dir))}`, or use "
                "another state folder"
            ) from error
        with contextlib.suppress(
            OSError
        ):  # the pid is for people; a full disk may lack room for it
            os.ftruncate(lock.fileno(), 0)
            token = process_identity.start_token(os.getpid())
            purpose = _STARTS if starts else _STOPS
            os.write(lock.fileno(), f"{os.getpid()}\n{token}\n{purpose}\n".encode("ascii"))
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                os.ftruncate(lock.fileno(), 0)


def lock_holder(state_dir: Path) -> LockHolder | None:
    """The `up` or `down` that holds the folder; None when no live one does, or its pid could not
    be written down. Takes no lock, so that it is in nobody's way.
    """
    path = state_dir / _UP_LOCK
    try:
        pid, token, *purpose = path.read_text("ascii").splitlines()
        holder = process_identity.ProcessIdentity(int(pid), token)
        seconds = time.time() - path.stat().st_mtime
    except (OSError, ValueError):
        return None
    if not holder.is_alive():
        return None
    return LockHolder(holder.pid, purpose == [_STARTS], max(0.0, seconds))


@contextlib.contextmanager
def brief_lock(state_dir: Path, name: str, timeout_seconds: float) -> Iterator[None]:
    """Let one process at a time start or stop the server `name`; waits for its turn.

    Raises StateFolderBusyError after `timeout_seconds`.
    """
    deadline = time.monotonic() + timeout_seconds
    with (state_dir / f"{name}.lock").open("a", encoding="ascii") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > deadline:
                    raise StateFolderBusyError(
                        f"another process has been starting or stopping {name} in {state_dir} "
                        f"for {measured_duration(timeout_seconds)}; try again when it is done"
                    ) from error
            time.sleep(_LOCK_POLL_SECONDS)
        yield


def write_atomically(path: Path, text: str, mode: int = 0o600) -> None:
    """Replace the whole file at once; it never exists with wider permissions than `mode`.

    Raises OSError, on a full disk for one, and the file is as it was.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.chmod(mode)
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def read_json(path: Path) -> Any:
    """The parsed file, or None when it is missing or not whole."""
    try:
        return json.loads(path.read_text("utf-8"))
    except (FileNotFoundError, ValueError):
        return None


def kept_secret(path: Path) -> str:
    """The secret in the file, generated and written (mode 0600) the first time; URL-safe.

    Raises EmbeddedServerError for a file that was cut short.
    """
    known = kept_line(path)
    if known is None:
        known = secrets.token_urlsafe(24)
        write_atomically(path, known + "\n")
    return known


def kept_line(path: Path) -> str | None:
    """The one line of the file; None when it is missing, or empty as a full disk may leave it.

    Raises EmbeddedServerError for a line without its end: a part of it would mean another thing.
    """
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return None
    if text and not text.endswith("\n"):
        raise EmbeddedServerError(
            f"{path} was cut short: its line has no end; put back the whole file from a copy"
        )
    return text.strip() or None


def kept_port(path: Path) -> int:
    """The remembered port when it is free now, else a new free one, remembered in the file."""
    remembered = recorded_port(path)
    if remembered and port_is_free(remembered):
        return remembered
    digest = hashlib.sha256(os.fsencode(path)).digest()
    first = int.from_bytes(digest[:4], "big")
    for step in range(_PORT_TRIES):
        port = _FIRST_PORT + (first + step * 7) % _PORT_SPAN
        if port_is_free(port):
            write_atomically(path, f"{port}\n", 0o644)
            return port
    raise EmbeddedServerError(
        f"found no free port on 127.0.0.1 among {_PORT_TRIES} from {_FIRST_PORT} to "
        f"{_FIRST_PORT + _PORT_SPAN}; stop what listens there"
    )


def recorded_port(path: Path) -> int | None:
    """The remembered port, free or not; None where none is."""
    try:
        return int(path.read_text("ascii"))
    except (FileNotFoundError, ValueError):
        return None


def port_is_free(port: int) -> bool:
    """True when a server could listen on 127.0.0.1:`port` now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As the servers do it: a port with connections still closing down counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            if error.errno in {errno.EADDRINUSE, errno.EACCES}:
                return False
            raise
    return True
