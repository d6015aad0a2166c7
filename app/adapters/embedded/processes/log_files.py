"""Log files of the supervised processes: bounded append that never fails, and the tail of one.

Not here: which process writes where.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

_MAX_LOG_BYTES = 10 * 1024 * 1024
_TAIL_BYTES = 16 * 1024
_LINES_BETWEEN_SIZE_CHECKS = 1000


class LogFile:
    """Appends lines to `path`. On a full disk lines are dropped, counted, and told of later."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._dropped = 0
        self._lines = 0

    def append(self, line: bytes) -> None:
        """Write a line without its end; whoever calls never fails for its log."""
        if self._lines % _LINES_BETWEEN_SIZE_CHECKS == 0:
            with contextlib.suppress(OSError):
                roll_over(self._path)
        self._lines += 1
        content = line + b"\n"
        if self._dropped:
            # The last line before may be half written.
            content = b"\n(%d lines were lost: the disk was full)\n" % self._dropped + content
        try:
            with self._path.open("ab", buffering=0) as file:
                whole = file.write(content) == len(content)
        except OSError:
            whole = False
        self._dropped = 0 if whole else self._dropped + 1


def log_path(state_dir: Path, name: str) -> Path:
    """`state_dir`/logs/`name`.log, with its folder made."""
    folder = state_dir / "logs"
    with contextlib.suppress(OSError):  # whoever writes there will meet the reason again
        folder.mkdir(mode=0o700, exist_ok=True)
    return folder / f"{name}.log"


def roll_over(path: Path) -> None:
    """Move a log over 10 MiB aside, in place of the one moved aside before."""
    if path.exists() and path.stat().st_size > _MAX_LOG_BYTES:
        path.replace(path.with_name(path.name + ".1"))


def last_lines(path: Path, count: int = 12) -> str:
    """The last `count` lines, or a note that there are none."""
    if not path.exists():
        return "(no log)"
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - _TAIL_BYTES))
        lines = file.read().decode("utf-8", "replace").splitlines()
    return "\n".join(lines[-count:]) or "(empty log)"
