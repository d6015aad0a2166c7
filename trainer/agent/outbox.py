"""Complete checkpoint folders of the running trainer, kept alive until they are published.

The trainer prunes and replaces its own folders as it likes. What is complete is hard-linked into
the outbox at once, so that a publication reads the very files that were saved. Not here: which of
them is published (`attempt_ending`).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from trainer.agent.agent_state import LocalCheckpoint

MANIFEST = "manifest.json"
MANIFEST_BYTES_MAX = 64 << 20
METRICS_MAX = 64
_COMPLETE = re.compile(r"^step-(\d{1,12})$")


@dataclass(frozen=True)
class FolderFacts:
    """What a checkpoint folder's own manifest says, as far as it says it."""

    final: bool = False
    world_size: int | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    optional: frozenset[str] = frozenset()


class Outbox:
    """Scans one attempt's checkpoint folder. `scan` in one thread, `take` in another."""

    def __init__(self, checkpoints: Path, outbox: Path) -> None:
        self._checkpoints = checkpoints
        self._outbox = outbox
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
                    stat = entry.stat(follow_symlinks=False)
                except OSError:  # the trainer has removed it meanwhile
                    continue
                present[entry.name] = (Path(entry.path), (stat.st_ino, stat.st_mtime_ns))
        return present

    def _link(self, name: str, path: Path) -> LocalCheckpoint | None:
        """None when the trainer removed the folder meanwhile; it is looked at again."""
        with self._lock:
            self._count += 1
            key = f"{self._count:06d}-{name}"
            try:
                shutil.copytree(path, self._outbox / key, copy_function=_link_file, symlinks=True)
            except (OSError, shutil.Error):
                shutil.rmtree(self._outbox / key, ignore_errors=True)
                return None
            for other in self._outbox.iterdir():
                if other.name not in (key, self._taken):
                    shutil.rmtree(other, ignore_errors=True)
        linked = self._outbox / key
        facts = read_folder_facts(linked)
        optional = sum(_size_of(linked / each) for each in facts.optional)
        return LocalCheckpoint(_step_of(name), facts.final, key, _size_of(linked), optional)


def read_folder_facts(folder: Path) -> FolderFacts:
    """Read `manifest.json` of a checkpoint folder; a missing or odd one says nothing."""
    try:
        with (folder / MANIFEST).open("rb") as file:
            document: Any = json.loads(file.read(MANIFEST_BYTES_MAX))
    except (OSError, ValueError, RecursionError):
        return FolderFacts()
    if not isinstance(document, dict):
        return FolderFacts()
    world_size, metrics = document.get("world_size"), document.get("metrics")
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
    )


def _names(listed: Any) -> frozenset[str]:
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
