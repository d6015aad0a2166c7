"""The cache on a local disk: files of buckets, and indexes that were made once.

Layout: ``<root>/<digest of the address>/files/...`` for whole files, ``<root>/index/...`` for
indexes. A file appears by rename, complete or not at all, so that any number of processes may read
while one fills (``bucket.py``). What does not fit stays in the bucket.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from trainer.training.data.loading.data_parts import short_digest

SCRATCH = Path("/scratch")
FREE_SHARE = 0.5


@dataclass(frozen=True)
class DataCache:
    """One folder, shared by all ranks of a machine, with a bound on the files of buckets."""

    root: Path
    limit_bytes: int

    def folder(self, address: str) -> Path:
        """Where whole files of the bucket at ``address`` lie."""
        return self.root / short_digest(address.rstrip("/")) / "files"

    def whole_file(self, address: str, path: str) -> Path | None:
        """The local copy of a file, None when there is none yet."""
        local = self.folder(address) / path
        return local if local.exists() else None

    def fetched(self, address: str, path: str, copy: Callable[[str, Path], None]) -> Path:
        """The local copy of a file, made now by ``copy(path, target)`` if there is none."""
        target = self.folder(address) / path
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            temporary = target.with_name(f".{target.name}.tmp-{os.getpid()}")
            copy(path, temporary)
            temporary.replace(target)
        return target

    @contextmanager
    def only_one(self, name: str) -> Iterator[None]:
        """Lets one process of this machine in at a time; the lock goes with its holder."""
        self.root.mkdir(parents=True, exist_ok=True)
        with (self.root / f"{name}.lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def write(self, path: Path, content: bytes) -> None:
        """Puts a file into the cache, at once."""
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{path.name}.tmp-{os.getpid()}")
        temporary.write_bytes(content)
        temporary.replace(path)


def open_cache(choice: str, limit_gb: float | None) -> DataCache | None:
    """The cache that the options ``cache`` and ``cache_gb`` ask for; None for "off".

    "auto" is in LOWTIDE_SCRATCH_DIR (the machine's fastest disk, as its agent names it), else on
    /scratch if one can write there, else in the user's cache folder, else in the temporary one.
    """
    if choice == "off":
        return None
    root = Path(choice) if choice != "auto" else _usual_root()
    if limit_gb is not None:
        return DataCache(root, int(limit_gb * 1e9))
    there = root
    while not there.exists():
        there = there.parent
    return DataCache(root, int(shutil.disk_usage(there).free * FREE_SHARE))


def _usual_root() -> Path:
    named = os.environ.get("LOWTIDE_SCRATCH_DIR")
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    for folder in (Path(named) if named else SCRATCH, SCRATCH, home):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            return folder / "lowtide-data"
    return Path(tempfile.gettempdir()) / f"lowtide-data-{os.getuid()}"
