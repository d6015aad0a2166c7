"""Log files of the supervised processes: bounded append, and the tail for an error message.

Not here: which process writes where.
"""

from __future__ import annotations

from pathlib import Path

_MAX_LOG_BYTES = 10 * 1024 * 1024
_TAIL_BYTES = 16 * 1024


def log_path(state_dir: Path, name: str) -> Path:
    """`state_dir`/logs/`name`.log, with its folder made."""
    folder = state_dir / "logs"
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
    with open(path, "rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - _TAIL_BYTES))
        lines = file.read().decode("utf-8", "replace").splitlines()
    return "\n".join(lines[-count:]) or "(empty log)"
