"""A working folder as one archive that depends on nothing but its content.

Equal folders give equal bytes: sorted, without times, owners or the machine's own modes. Not here:
which files belong in (`workdir_files`), or the upload (`submit`).
"""

from __future__ import annotations

import gzip
import hashlib
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from app.cli.client.failures import CommandFailed
from app.cli.client.wording import size
from app.cli.jobs.workdir_files import Member, find_members

CONTENT_BYTES_MAX: Final = 4 << 30
_COMPRESSION: Final = 6
_PIECE_BYTES: Final = 256 << 10
_LARGEST_NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class Archive:
    """A packed folder in a temporary file; `digest` is `sha256:` and hex digits, of its bytes."""

    digest: str
    size_bytes: int
    content_bytes: int
    files: int
    file: IO[bytes]

    def pieces(self) -> Iterator[bytes]:
        """The bytes from the beginning."""
        self.file.seek(0)
        while piece := self.file.read(_PIECE_BYTES):
            yield piece


@contextmanager
def packed(folder: Path, archive_bytes_max: int) -> Iterator[Archive]:
    """The folder as a deterministic tar.gz, removed at the end.

    Raises CommandFailed when something cannot travel, or when the folder (4 GiB) or the archive
    (`archive_bytes_max`) is too large: then with the largest files.
    """
    members = find_members(folder)
    content_bytes = sum(member.size_bytes for member in members)
    if content_bytes > CONTENT_BYTES_MAX:
        raise _too_large(folder, members, f"it holds {size(content_bytes)}", CONTENT_BYTES_MAX)
    with tempfile.TemporaryFile(prefix="lowtide-workdir-") as file:
        try:
            with (
                # The name and the time would be written into the archive.
                gzip.GzipFile("", "wb", _COMPRESSION, file, mtime=0) as zipped,
                tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar,
            ):
                limit = _Limit(file, archive_bytes_max)
                for member in members:
                    _add(tar, member, limit)
            size_bytes = file.tell()
            if size_bytes > archive_bytes_max:
                raise _LimitReached(size_bytes)
        except _LimitReached as reached:
            so_far = f"{size(reached.packed_bytes)} packed so far"
            raise _too_large(folder, members, so_far, archive_bytes_max) from None
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        files = sum(1 for member in members if not member.is_dir)
        yield Archive(f"sha256:{digest}", size_bytes, content_bytes, files, file)


class _LimitReached(Exception):
    """The archive is too large already; whatever is left would only make it larger."""

    def __init__(self, packed_bytes: int) -> None:
        super().__init__(packed_bytes)
        self.packed_bytes = packed_bytes


@dataclass(frozen=True, slots=True)
class _Limit:
    """How large the archive may become, looked at with each piece of a file that goes into it."""

    archive: IO[bytes]
    bytes_max: int

    def check(self) -> None:
        """Raises _LimitReached."""
        if self.archive.tell() > self.bytes_max:
            raise _LimitReached(self.archive.tell())


@dataclass(frozen=True, slots=True)
class _Watched:
    """A file's content, read only as long as the archive may grow."""

    content: IO[bytes]
    limit: _Limit

    def read(self, size_bytes: int = -1, /) -> bytes:
        """As of a file. Raises _LimitReached."""
        self.limit.check()
        return self.content.read(size_bytes)


def _add(tar: tarfile.TarFile, member: Member, limit: _Limit) -> None:
    entry = tarfile.TarInfo(member.name)
    entry.mode = 0o755 if member.is_dir or member.executable else 0o644
    if member.target is not None:
        entry.type, entry.linkname = tarfile.SYMTYPE, member.target
        tar.addfile(entry)
        return
    if member.is_dir:
        entry.type = tarfile.DIRTYPE
        tar.addfile(entry)
        return
    entry.size = member.size_bytes
    try:
        with member.path.open("rb") as content:
            tar.addfile(entry, _Watched(content, limit))
    except OSError as error:
        reason = error.strerror or "it changed while it was packed; try again"
        raise CommandFailed(f"workdir: {member.path} cannot be packed: {reason}") from error


def _too_large(folder: Path, members: Sequence[Member], what: str, bytes_max: int) -> CommandFailed:
    largest = sorted(members, key=lambda member: -member.size_bytes)[:_LARGEST_NAMED]
    return CommandFailed(
        f"workdir: {folder} is too large: {what}, and the limit is {size(bytes_max)}. List what "
        "the job does not need in .gitignore, and bring data by `inputs`. The largest files:",
        details=[f"{size(one.size_bytes):>9}  {one.name}" for one in largest],
    )
