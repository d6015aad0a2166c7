"""Complete checkpoint folders of the running trainer, kept alive until they are published.

The trainer prunes and replaces its own folders as it likes. What is complete is hard-linked into
the outbox at once, so that a publication reads the very files that were saved. Where a gang saves
together, a folder holds this machine's share. Not here: which of them is published
(`attempt_ending`, for shares `share_sender`).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from trainer.agent.rules.agent_state import LocalCheckpoint

MANIFEST = "manifest.json"
MANIFEST_BYTES_MAX = 64 << 20
METRICS_MAX = 64
ASKED_WITHIN_SECONDS = 10.0
"""A share is kept so long after a newer one has come: which is wanted, another machine says, and
that one may be slower to save."""
SHARES_KEPT_MAX = 64
_SHARE_MANIFESTS = "manifest-*-of-*.json"
_COMPLETE = re.compile(r"^step-(\d{1,12})$")


@dataclass(frozen=True)
class FolderFacts:
    """What a checkpoint folder's own manifest says, as far as it says it."""

    final: bool = False
    world_size: int | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    optional: frozenset[str] = frozenset()
    machines: int = 1
    save: int = 0


class Outbox:
    """Scans one attempt's checkpoint folder. `scan` in one thread, `take` in another."""

    def __init__(
        self,
        checkpoints: Path,
        outbox: Path,
        machines: int = 1,
        kept_seconds: float = 0.0,
        shares_only: bool = False,
        owner: int | None = None,
    ) -> None:
        """machines: how many save together. kept_seconds: for so long what a newer one has
        replaced may still be asked for. shares_only: a folder that is no share stays where it is.
        owner: the trainer's OS user, where it is another than ours: of nobody else's files a
        checkpoint is made.
        """
        self._owner = owner
        self._shares_only = shares_only
        self._checkpoints = checkpoints
        self._outbox = outbox
        self._machines = machines
        self._kept_seconds = kept_seconds
        self._newest: str | None = None
        self._replaced_at: dict[str, float] = {}
        self._known: dict[str, tuple[int, int]] = {}
        self._count = 0
        self._taken: str | None = None
        self._lock = threading.Lock()

    def scan(self) -> list[LocalCheckpoint]:
        """Folders that became complete since the last scan, oldest step first.

        A folder is complete when its name is `step-<digits>` with nothing after it; an empty one
        is not looked at yet.
        """
        found = []
        present = self._complete_folders()
        for name, (path, mark) in sorted(present.items(), key=lambda item: _step_of(item[0])):
            if self._known.get(name) != mark and _holds_something(path):
                if self._shares_only and read_folder_facts(path).save == 0:
                    self._known[name] = mark
                    continue
                checkpoint = self._link(name, path)
                if checkpoint is not None:
                    self._known[name] = mark
                    found.append(checkpoint)
        self._known = {name: mark for name, mark in self._known.items() if name in present}
        return found

    def take(self, key: str) -> Path | None:
        """The linked folder, kept until `give_back`; None when a newer one has replaced it."""
        with self._lock:
            path = self._outbox / key
            self._taken = key if path.is_dir() else None
            return path if path.is_dir() else None

    def give_back(self, key: str, done: bool) -> None:
        """Stop keeping a folder; `done` removes it."""
        with self._lock:
            self._taken = None
            if done:
                shutil.rmtree(self._outbox / key, ignore_errors=True)

    def _complete_folders(self) -> dict[str, tuple[Path, tuple[int, int]]]:
        present = {}
        try:
            entries = list(os.scandir(self._checkpoints))
        except OSError:
            return {}
        for entry in entries:
            if _COMPLETE.match(entry.name) and entry.is_dir(follow_symlinks=False):
                try:
                    facts = entry.stat(follow_symlinks=False)
                except OSError:  # the trainer has removed it meanwhile
                    continue
                present[entry.name] = (Path(entry.path), (facts.st_ino, facts.st_mtime_ns))
        return present

    def _link(self, name: str, path: Path) -> LocalCheckpoint | None:
        """None when the trainer removed the folder meanwhile; it is looked at again."""
        with self._lock:
            self._count += 1
            key = f"{self._count:06d}-{name}"
            try:
                shutil.copytree(path, self._outbox / key, copy_function=_link_file, symlinks=True)
                self._require_own(self._outbox / key)
            except (OSError, shutil.Error):
                shutil.rmtree(self._outbox / key, ignore_errors=True)
                return None
            self._remove_besides(key)
        linked = self._outbox / key
        facts = read_folder_facts(linked)
        optional = sum(_size_of(linked / each) for each in facts.optional)
        save = facts.save if facts.machines == self._machines > 1 else 0
        return LocalCheckpoint(_step_of(name), facts.final, key, _size_of(linked), optional, save)

    def _require_own(self, linked: Path) -> None:
        """We may read every file, the trainer may not: in a folder that it swaps for a link at the
        right moment, others' would be taken for its own. Raises PermissionError.
        """
        if self._owner is None:
            return
        for path in linked.rglob("*"):
            facts = path.lstat()
            if stat.S_ISREG(facts.st_mode) and facts.st_uid != self._owner:
                raise PermissionError(f"{path.name} does not belong to the trainer's user")

    def _remove_besides(self, newest: str) -> None:
        """The newest one replaces the others; of shares those that may still be asked for stay."""
        now = time.monotonic()
        if self._newest is not None:
            self._replaced_at[self._newest] = now
        self._newest = newest
        young = [key for key, at in self._replaced_at.items() if now - at < self._kept_seconds]
        kept = {newest, self._taken, *young[-SHARES_KEPT_MAX:]}
        for other in self._outbox.iterdir():
            if other.name not in kept:
                shutil.rmtree(other, ignore_errors=True)
        self._replaced_at = {key: at for key, at in self._replaced_at.items() if key in kept}


def read_folder_facts(folder: Path) -> FolderFacts:
    """Read what a checkpoint folder says of itself; a missing or odd manifest says nothing."""
    try:
        with _manifest_in(folder).open("rb") as file:
            document: Any = json.loads(file.read(MANIFEST_BYTES_MAX))
    except (OSError, ValueError, RecursionError):
        return FolderFacts()
    if not isinstance(document, dict):
        return FolderFacts()
    world_size, metrics = document.get("world_size"), document.get("metrics")
    machines, save = _share_in(document)
    numbers: dict[str, float] = {}
    if isinstance(metrics, dict):
        for name, value in list(metrics.items())[:METRICS_MAX]:
            if isinstance(value, int | float) and abs(value) <= sys.float_info.max:
                numbers[str(name)[:100]] = float(value)
    return FolderFacts(
        final=document.get("final") is True,
        world_size=world_size if isinstance(world_size, int) and world_size > 0 else None,
        metrics=numbers,
        optional=_names(document.get("optional")),
        machines=machines,
        save=save,
    )


def _manifest_in(folder: Path) -> Path:
    """A share of another machine than the first has its manifest under a name of its own."""
    shares = [] if (folder / MANIFEST).exists() else sorted(folder.glob(_SHARE_MANIFESTS))
    return shares[0] if shares else folder / MANIFEST


def _share_in(document: dict[str, Any]) -> tuple[int, int]:
    """How many machines have saved together, and which save of theirs this is; (1, 0) if none."""
    share = document.get("share")
    machines, save = (
        (share.get("machines"), share.get("save")) if isinstance(share, dict) else (None, None)
    )
    if not isinstance(machines, int) or not isinstance(save, int) or min(machines, save) < 1:
        return 1, 0
    return machines, save


def _names(listed: object) -> frozenset[str]:
    """Plain names of files; whatever leads elsewhere is none."""
    if not isinstance(listed, list):
        return frozenset()
    return frozenset(
        name for name in listed if isinstance(name, str) and PurePosixPath(name).name == name
    )


def _holds_something(folder: Path) -> bool:
    """Also False for a folder that the trainer has removed meanwhile, or that cannot be read."""
    try:
        return any(folder.iterdir())
    except OSError:
        return False


def _size_of(place: Path) -> int:
    """Bytes of a file, or of all below a folder; what cannot be looked at counts nothing."""
    found = 0
    for path in (place, *place.rglob("*")):
        with suppress(OSError):
            found += path.lstat().st_size if path.is_file() else 0
    return found


def _step_of(name: str) -> int:
    return int(name.removeprefix("step-"))


def _link_file(source: str, target: str) -> str:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:  # another file system, or one without hard links
        shutil.copy2(source, target)
    return target
