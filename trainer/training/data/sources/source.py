"""Where files lie: a folder of this machine, or a bucket read through a cache.

A source gives its files in one order everywhere and reads pieces of them; what the files mean is
for the layouts (``folders``, ``shards``). A bucket is listed by a child process: its client has
threads that a worker forked later cannot use.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

from trainer.training.data.loading.data_parts import BadSampleError
from trainer.training.data.sources.cache import DataCache
from trainer.training.data.sources.remote_files import RemoteFiles
from trainer.training.training_errors import DataError, DataUnavailableError

BUCKET_SCHEMES = ("s3://", "gs://")
MOST_FILES = 20_000_000
LIST_SECONDS = 1_800.0
_BUCKET_TOOL = "trainer.training.data.sources.bucket"
_fillers: list[subprocess.Popen[bytes]] = []


class File(NamedTuple):
    """``path`` is relative to the source, with forward slashes; ``size`` in bytes."""

    path: str
    size: int


class Source(Protocol):
    """Files below one place; ``address`` is how the user wrote it."""

    @property
    def address(self) -> str:
        """The folder or URL, as the user wrote it."""
        ...

    @property
    def files(self) -> tuple[File, ...]:
        """All files, by path; hidden ones are left out."""
        ...

    def read(self, path: str, start: int = 0, size: int | None = None) -> bytes:
        """Bytes of a file. Raises ``BadSampleError`` when it is not there or too short, and
        ``DataUnavailableError`` when a bucket does not answer.
        """
        ...


@dataclass(frozen=True)
class LocalSource:
    """A folder. Symbolic links are followed, once each."""

    address: str
    root: Path

    @cached_property
    def files(self) -> tuple[File, ...]:
        """As ``Source.files``."""
        found: list[File] = []
        seen: set[tuple[int, int]] = set()
        root = str(self.root)
        for folder, folders, names in os.walk(root, followlinks=True):
            here = Path(folder).stat()
            if (here.st_dev, here.st_ino) in seen:
                folders.clear()
                continue
            seen.add((here.st_dev, here.st_ino))
            folders[:] = [name for name in folders if not name.startswith(".")]
            below = folder[len(root) :].lstrip("/")
            # Plain strings: there may be millions, and this is on the way to the first step.
            for name in names:
                if not name.startswith("."):
                    found.append(File(f"{below}/{name}" if below else name, _size(folder, name)))
        return _ordered(found, self.address)

    def read(self, path: str, start: int = 0, size: int | None = None) -> bytes:
        """As ``Source.read``."""
        return read_piece(self.root / path, start, size)


@dataclass(frozen=True)
class BucketSource:
    """``s3://bucket/prefix`` or ``gs://bucket/prefix``; whole files may be in the cache."""

    address: str
    cache: DataCache | None

    @cached_property
    def files(self) -> tuple[File, ...]:
        """As ``Source.files``. Raises ``DataError`` and ``DataUnavailableError``."""
        lines = run_bucket_tool("list", self.address).splitlines()
        return _ordered([File(*json.loads(line)) for line in lines], self.address)

    def read(self, path: str, start: int = 0, size: int | None = None) -> bytes:
        """As ``Source.read``."""
        if self.cache is not None:
            local = self.cache.whole_file(self.address, path)
            if local is not None:
                return read_piece(local, start, size)
        return RemoteFiles.of(self.address).read(path, start, size)

    @contextmanager
    def opened(self, path: str, keep: bool) -> Iterator[IO[bytes]]:
        """A file to be read from its start to its end; ``keep`` copies it into the cache first."""
        bucket = RemoteFiles.of(self.address)
        if keep and self.cache is not None:
            with self.cache.fetched(self.address, path, bucket.copy_to).open("rb") as file:
                yield file
        else:
            with io.BufferedReader(_Pieces(bucket.pieces(path))) as stream:
                yield stream

    def start_filling(self) -> None:
        """Copies files into the cache from now on, in a process of its own that dies with us."""
        if self.cache is not None:
            limit = ("--cache", str(self.cache.root), "--limit", str(self.cache.limit_bytes))
            command = [sys.executable, "-m", _BUCKET_TOOL, "fill", self.address, *limit]
            # It tells nobody of its end: whatever it could not copy is read from the bucket.
            _fillers.append(subprocess.Popen(command, stdout=subprocess.DEVNULL))


class _Pieces(io.RawIOBase):
    """A stream over pieces of bytes of any size."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._left:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._left = memoryview(piece)
        count = min(len(buffer), len(self._left))
        buffer[:count] = self._left[:count]
        self._left = self._left[count:]
        return count


def open_source(address: str, cache: DataCache | None) -> Source:
    """The source at a path or URL. Raises ``DataError`` for a folder that is not there."""
    if address.startswith(BUCKET_SCHEMES):
        return BucketSource(address.rstrip("/"), cache)
    root = Path(address.removeprefix("file://")).expanduser()
    if not root.is_dir():
        beside = "" if root.is_absolute() else f" in {Path.cwd()}"
        what = "is a file, not a folder" if root.exists() else f"is not there{beside}"
        raise DataError(f"data: the folder {root} {what}")
    return LocalSource(address, root)


def read_piece(path: Path, start: int, size: int | None) -> bytes:
    """``size`` bytes of a local file from ``start``, or all that follows. See ``Source.read``."""
    try:
        with path.open("rb") as file:
            file.seek(start)
            data = file.read() if size is None else file.read(size)
    except OSError as error:
        raise BadSampleError(f"{path} cannot be read ({error.strerror})") from error
    if size is not None and len(data) != size:
        raise BadSampleError(f"{path} ends {size - len(data)} bytes early")
    return data


def run_bucket_tool(*arguments: str) -> str:
    """What ``trainer.training.data.sources.bucket`` prints; its last line of error is ours.

    Raises ``DataError`` (exit status 2) and ``DataUnavailableError`` (any other).
    """
    command = [sys.executable, "-m", _BUCKET_TOOL, *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=LIST_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise DataUnavailableError(f"data: {arguments[1]} took too long to answer") from error
    if done.returncode == 0:
        return done.stdout
    said = (done.stderr.strip() or "no reason given").splitlines()[-1]
    raise (DataError if done.returncode == 2 else DataUnavailableError)(said)


def _size(folder: str, name: str) -> int:
    """0 for a link that leads nowhere: it is told like an empty file."""
    try:
        # A data set has millions of files; a Path for each of them costs more than the look-up.
        return os.stat(f"{folder}/{name}").st_size  # noqa: PTH116
    except OSError:
        return 0


def _ordered(files: list[File], address: str) -> tuple[File, ...]:
    if len(files) > MOST_FILES:
        raise DataError(
            f"data: {address} has more than {MOST_FILES:,} files; pack them into shards"
            " (python -m trainer.training.data.convert)"
        )
    return tuple(sorted(files, key=lambda file: file.path))
