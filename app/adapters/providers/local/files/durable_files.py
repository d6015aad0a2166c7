"""Writing so that a crash or a full disk leaves the old or the new, and speaking to a log file."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path


def say(text: str) -> None:
    """A line on stderr, which is the cloud's log; lost where that cannot be written."""
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr)


def owner_only(path: str, flags: int) -> int:
    """An opener for `open`: a file that it makes is its owner's alone."""
    return os.open(path, flags, 0o600)


def replace_durably(path: Path, text: str) -> None:
    """Replace the file's content: temporary file beside it, flushed, renamed, folder flushed.

    Raises OSError: the old content stays or, if only the folder could not be flushed, the new one
    is there and may be gone again after a power cut.
    """
    temporary = path.with_name(f".{path.name}.new")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with open(handle, "w", encoding="utf-8", closefd=False) as file:
            file.write(text)
        os.fsync(handle)
    except OSError:
        # A full disk must not keep half of what it had no room for.
        temporary.unlink(missing_ok=True)
        raise
    finally:
        os.close(handle)
    temporary.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
