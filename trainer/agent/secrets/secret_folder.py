"""Where a job's secrets are files: a folder in memory that its commands' OS user alone may enter.

Nothing of it is ever on a disk; it is emptied when an attempt begins or ends and when the agent
starts or leaves. Not here: asking for the values (`attempt_secrets`).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from trainer.protocol.run_config import IN_MEMORY, secret_folder_name

MOUNTS = Path("/proc/self/mountinfo")
_IN_MEMORY_TYPES = frozenset({"tmpfs", "ramfs"})


class SecretFolder:
    """`open`, `write` what there is, then `hand_over`.

    machine_id: machines of the local cloud share one memory. give_away: makes the OS user of the
    job's commands the owner.
    """

    def __init__(
        self,
        machine_id: str,
        give_away: Callable[[Path], None],
        root: Path = Path(IN_MEMORY),
    ) -> None:
        self._root = root
        self._give_away = give_away
        self.path = root / secret_folder_name(machine_id)

    def open(self) -> None:
        """Make it, empty. Raises OSError, also if it would be on a disk or is somebody else's."""
        self.clear()
        kind = filesystem_of(self._root)
        if kind not in _IN_MEMORY_TYPES:
            raise OSError(f"secrets are kept in memory alone, and {self._root} is {kind} here")
        # What is there already was put there by somebody who wants to read it: refused.
        self.path.mkdir(mode=0o700)

    def write(self, name: str, content: str) -> Path:
        """A file of mode 0600. Raises OSError."""
        path = self.path / name
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(content)
        self._give_away(path)
        return path

    def hand_over(self) -> None:
        """Let the job's OS user have it. From then on a process of that user may put a link in its
        place: the agent writes nothing there any more, but for containers, which cannot write.
        """
        self._give_away(self.path)

    def clear(self) -> None:
        """Remove it with all that is in it, as far as it is ours to remove."""
        shutil.rmtree(self.path, ignore_errors=True)


def filesystem_of(path: Path) -> str:
    """The type of the file system that a path is on, from the kernel's list of mounts; "" if that
    cannot be read. Source: proc_pid_mountinfo(5).
    """
    found, length = "", -1
    try:
        lines = MOUNTS.read_text("utf-8", "replace").splitlines()
    except OSError:
        return found
    for line in lines:
        before, _, after = line.partition(" - ")
        fields = before.split()
        if len(fields) < 5 or not after:
            continue
        mounted = Path(fields[4])
        # The last of several mounts on one place is the one that is seen.
        if path.is_relative_to(mounted) and len(mounted.parts) >= length:
            found, length = after.split()[0], len(mounted.parts)
    return found
