"""Tells a trainer by when it must have saved: the file that LOWTIDE_NOTICE_FILE names."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from trainer.agent.machine.small_files import replace_file
from trainer.hooks.notice import notice_text


def write_deadline(path: Path, deadline: float | None) -> None:
    """Replaces the file as a whole; with None, for an unknown deadline, there is none.

    A disk that is full is no reason to end anything: the trainer then knows of no deadline.
    """
    if deadline is not None:
        replace_file(path, notice_text(deadline))
        return
    with suppress(OSError):
        path.unlink(missing_ok=True)
