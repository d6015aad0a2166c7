"""What a packed working folder may hold: the same rules under which machines unpack it, and bounds.

Not here: its transfer (`workdirs`), or unpacking (`trainer.agent.workdir`).
"""

from __future__ import annotations

import tarfile
from pathlib import Path, PurePosixPath
from typing import IO

from app.domain.errors import SpecError

MEMBERS_MAX = 100_000
UNPACKED_BYTES_MAX = 4 << 30
_NOWHERE = Path("/nonexistent/workdir")


def check_archive(file: IO[bytes]) -> None:
    """Read a tar.gz to its end without unpacking it.

    Raises SpecError naming the member: an absolute path, a way out by `..` or a link, a device, a
    path through a link, too many members, or more than 4 GiB unpacked.
    """
    unpacked, links = 0, set[PurePosixPath]()
    try:
        with tarfile.open(fileobj=file, mode="r|gz") as archive:
            for number, member in enumerate(archive):
                if number >= MEMBERS_MAX:
                    _refuse(f"the archive has more than {MEMBERS_MAX:,} members; pack less")
                unpacked += max(0, member.size)
                if unpacked > UNPACKED_BYTES_MAX:
                    _refuse("the archive unpacks to more than 4 GiB; pack less")
                _check_member(member, links)
    except (tarfile.TarError, EOFError, OSError, ValueError) as error:
        _refuse(f"the archive is no tar.gz that can be read ({type(error).__name__}); pack it anew")


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
