"""What a packed working folder may hold: the same rules under which machines unpack it, and bounds.

Not here: its transfer (`workdirs`), or unpacking (`trainer.agent.workdir`).
"""

from __future__ import annotations

import gzip
import tarfile
import zlib
from pathlib import Path, PurePosixPath
from typing import IO

from app.domain.errors import SpecError

MEMBERS_MAX = 100_000
UNPACKED_BYTES_MAX = 4 << 30
HEADER_BYTES_MAX = 1 << 20
_NOWHERE = Path("/nonexistent/workdir")


def check_archive(file: IO[bytes]) -> None:
    """Read a tar.gz to its end without unpacking it, in little memory whatever it holds.

    Raises SpecError naming the member: an absolute path, a way out by `..` or a link, a device, a
    path through a link, too many members, or more than 4 GiB unpacked.
    """
    number, links, unpacked = 0, set[PurePosixPath](), _Unpacked(file)
    try:
        with tarfile.TarFile(fileobj=unpacked) as archive:  # type: ignore[arg-type]
            while (member := archive.next()) is not None:
                number += 1
                unpacked.begin_member()
                if number > MEMBERS_MAX:
                    _refuse(f"the archive has more than {MEMBERS_MAX:,} members; pack less")
                if member.size < 0 or archive.offset > UNPACKED_BYTES_MAX:
                    _refuse("the archive unpacks to more than 4 GiB; pack less")
                _check_member(member, links)
    except (tarfile.TarError, EOFError, OSError, ValueError, zlib.error) as error:
        if isinstance(error, SpecError):
            raise
        _refuse("the archive is no tar.gz that can be read; make it with `tar -czf`")


class _Unpacked:
    """The tar inside the gzip. What is said about a member is read whole, so that is bounded: a
    few megabytes can unpack to a header of gigabytes. Contents are passed over, never held."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = gzip.GzipFile(fileobj=file, mode="rb")
        self._left = HEADER_BYTES_MAX

    def begin_member(self) -> None:
        """What is read from here on is about the next member."""
        self._left = HEADER_BYTES_MAX

    def read(self, size: int) -> bytes:
        """Raises SpecError when a member's headers are larger than 1 MiB."""
        self._left -= size
        if self._left < 0:
            _refuse("the archive says more than 1 MiB about one of its members; pack it anew")
        return self._file.read(size)

    def seek(self, offset: int) -> int:
        """Go to a byte of the tar."""
        return self._file.seek(offset)

    def tell(self) -> int:
        """At which byte of the tar reading goes on."""
        return self._file.tell()


def _check_member(member: tarfile.TarInfo, links: set[PurePosixPath]) -> None:
    shown, path = member.name[:120], PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts:
        _refuse(f"{shown!r} lies outside of the folder; pack with paths below it")
    if any(parent in links for parent in path.parents):
        _refuse(f"{shown!r} leads through a link; pack the file itself")
    try:
        tarfile.data_filter(member, str(_NOWHERE))
    except tarfile.SpecialFileError:
        _refuse(f"{shown!r} is a device or pipe; leave it out")
    except tarfile.FilterError:
        _refuse(
            f"{shown!r} is a link to {member.linkname[:120]!r}, out of the folder; leave it out"
        )
    if member.issym() or member.islnk():
        links.add(path)


def _refuse(message: str) -> None:
    raise SpecError.of(f"workdir: {message}", "workdir")
