"""Tells a trainer by when it must have saved: the file that LOWTIDE_NOTICE_FILE names."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from trainer.hooks.notice import notice_text


def write_deadline(path: Path, deadline: float | None) -> None:
    """Replaces the file as a whole; with None, for an unknown deadline, there is none.

    A disk that is full is no reason to end anything: the trainer then knows of no deadline.
    """
    temporary = None
    try:
        if deadline is None:
            path.unlink(missing_ok=True)
            return
        descriptor, temporary = tempfile.mkstemp(prefix=".notice-", dir=path.parent)
        with os.fdopen(descriptor, "w") as file:
            file.write(notice_text(deadline))
        os.chmod(temporary, 0o644)  # the trainer may be another user
        os.replace(temporary, path)
    except OSError:
        if temporary is not None:
            with suppress(OSError):
                os.unlink(temporary)
