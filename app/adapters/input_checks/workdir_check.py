"""What a packed working folder may hold: the same rules under which machines unpack it, and bounds.

As a program it is the child that checks the archive on stdin, and prints JSON with `refused`. Not
here: who starts it (`archive_checker`), or unpacking (`trainer.agent.attempt.workdir`).
"""

from __future__ import annotations

import gzip
import sys
import tarfile
import zlib
from pathlib import Path, PurePosixPath
from typing import IO, Final, NoReturn

import orjson

from app.adapters.input_checks.child_process import ChildLimits, limit_this_process
from app.domain.units.errors import SpecError

MEMBERS_MAX: Final = 100_000
UNPACKED_BYTES_MAX: Final = 4 << 30
HEADER_BYTES_MAX: Final = 1 << 20
CHECK_SECONDS_MAX: Final = 60
LIMITS: Final = ChildLimits(
    memory_bytes=512 << 20, processor_seconds=CHECK_SECONDS_MAX, niceness=10
)
_NOWHERE: Final = Path("/nonexistent/workdir")
_ADVICE: Final = "list what the job does not need in .gitignore, or bring data as `inputs`"


def check_archive(file: IO[bytes]) -> None:
    """Read a tar.gz to its end without unpacking it, in little memory whatever it holds.

    Raises SpecError naming the member: an absolute path, a way out by `..` or a link, a device, a
    path through a link, too many members, or more than 4 GiB unpacked.
    """
    number = unpacked_bytes = 0
    links, unpacked = set[PurePosixPath](), _Unpacked(file)
    try:
        with tarfile.TarFile(fileobj=unpacked) as archive:  # type: ignore[arg-type]
            while (member := archive.next()) is not None:
                # It keeps every member otherwise, which nobody asks it for.
                archive.members.clear()  # type: ignore[attr-defined]
                number += 1
                unpacked.begin_member()
                if number > MEMBERS_MAX:
                    _refuse(f"the archive has more than {MEMBERS_MAX:,} members; {_ADVICE}")
                # A sparse file unpacks to more than it takes in the archive.
                unpacked_bytes += max(0, member.size)
                if member.size < 0 or max(archive.offset, unpacked_bytes) > UNPACKED_BYTES_MAX:
                    _refuse(f"the archive unpacks to more than 4 GiB; {_ADVICE}")
                _check_member(member, links)
    except (tarfile.TarError, EOFError, OSError, ValueError, zlib.error) as error:
        if isinstance(error, SpecError):
            raise
        _refuse("the archive is not a readable tar.gz; make it with `tar -czf`")


class _Unpacked:
    """The tar inside the gzip. What is said about a member is read whole, so that is bounded: a
    few megabytes can unpack to a header of gigabytes. Contents are passed over, never held.
    """

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
            _refuse("the archive says more than 1 MiB about one of its members; pack it again")
        return self._file.read(size)

    def seek(self, offset: int) -> int:
        """Go to a byte of the tar."""
        return self._file.seek(offset)

    def tell(self) -> int:
        """At which byte of the tar reading goes on."""
        return self._file.tell()


def _check_member(member: tarfile.TarInfo, links: set[PurePosixPath]) -> None:
    shown, name = member.name[:120], member.name
    if name.startswith("/") or ".." in name.split("/") or "\0" in name:
        _refuse(f"{shown!r} is outside of the folder; pack with paths below it")
    plain = member.isreg() or member.isdir()
    if plain and not links:
        # Its name is all that the filter looks at; the filter asks the disk about each part of it.
        return
    path = PurePosixPath(name)
    if any(parent in links for parent in path.parents):
        _refuse(f"{shown!r} leads through a link; pack the file itself")
    try:
        if not plain:
            tarfile.data_filter(member, str(_NOWHERE))
    except tarfile.SpecialFileError:
        _refuse(f"{shown!r} is a device or pipe; leave it out")
    except tarfile.FilterError:
        _refuse(
            f"{shown!r} is a link to {member.linkname[:120]!r}, out of the folder; leave it out"
        )
    if member.issym() or member.islnk():
        links.add(path)


def _refuse(message: str) -> NoReturn:
    raise SpecError.of(f"workdir: {message}", "workdir")


def main() -> None:
    """Check the archive on stdin, and print what is wrong with it."""
    limit_this_process(LIMITS)
    refused: str | None = None
    try:
        check_archive(sys.stdin.buffer)
    except SpecError as error:
        refused = error.message
    except MemoryError:
        limit = LIMITS.memory_bytes >> 20
        refused = f"workdir: the archive takes more than {limit} MiB of memory to check; {_ADVICE}"
    sys.stdout.buffer.write(orjson.dumps({"refused": refused}))


if __name__ == "__main__":
    main()
