"""Small files of the agent, on a disk that may be full.

Lives here: replacing a file as a whole, and knowing a full disk by its error. A full disk costs
time, never an agent: nothing here raises for one.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})


def is_no_room(error: BaseException | None) -> bool:
    """Whether a full disk, or a used-up quota, made this error or one that it was raised from."""
    for _ in range(10):
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            return True
        if error is None:
            return False
        error = error.__cause__ or error.__context__
    return False


def replace_file(path: Path, content: str, mode: int = 0o644, durable: bool = False) -> bool:
    """Put a new file in the place of the old one, which is never seen half written.

    durable: it outlives a power cut. Returns False, and leaves the old one, where it cannot be
    written.
    """
    temporary = path.with_name(path.name + ".tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        try:
            os.fchmod(descriptor, mode)  # whatever the umask: another user may have to read it
            _write_all(descriptor, content.encode())
            if durable:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        return False
    return True


def _write_all(descriptor: int, content: bytes) -> None:
    """Every byte; a full disk takes a part of them without an error. Raises OSError."""
    while content:
        content = content[os.write(descriptor, content) :]
