"""Writing small files so that a crash leaves the old content or the new, never half of it."""

from __future__ import annotations

import os
from pathlib import Path


def replace_durably(path: Path, text: str) -> None:
    """Replace the file's content: temporary file beside it, flushed, renamed, folder flushed."""
    temporary = path.with_name(f".{path.name}.new")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with open(handle, "w", encoding="utf-8", closefd=False) as file:
            file.write(text)
        os.fsync(handle)
    finally:
        os.close(handle)
    os.replace(temporary, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
