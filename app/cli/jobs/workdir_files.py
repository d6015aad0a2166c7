"""Which files of a working folder travel with a job: what git would keep, and nothing from outside.

Lives here: the walk, `.gitignore`, and the refusal of links that lead out. Not here: the archive
that is made of them (`workdir_archive`).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from app.cli.client.failures import CommandFailed

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

ARCHIVE_BYTES_MAX: Final = 100 << 20
"""What the api accepts for one packed folder."""
MEMBERS_MAX: Final = 100_000
"""What the api accepts in one archive."""
_NEVER_PACKED: Final = frozenset({".git", ".lowtide"})
_NAMED_MAX: Final = 10
_IGNORE_FILE_BYTES_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Member:
    """One thing to pack. `name` is relative to the folder, with `/`; `target` only for links."""

    name: str
    path: Path
    is_dir: bool
    executable: bool
    size_bytes: int
    target: str | None = None


@dataclass(frozen=True, slots=True)
class _Rules:
    """One `.gitignore`, and the folder it stands in."""

    folder: Path
    patterns: GitIgnoreSpec


def not_a_folder(folder: Path) -> str:
    """The sentence about a working folder that is none."""
    return f"workdir: {folder} is not a folder; name one that exists"


def find_members(folder: Path) -> list[Member]:
    """Everything to pack, sorted by name. Raises CommandFailed naming what cannot travel:
    links that lead out of the folder, sockets and devices, folders that cannot be read.
    """
    root = folder.resolve()
    if not root.is_dir():
        raise CommandFailed(not_a_folder(folder))
    members: list[Member] = []
    refused: list[str] = []
    for member in _walk(root, root, _rules_above(root), refused):
        members.append(member)
        if len(members) > MEMBERS_MAX:
            raise CommandFailed(
                f"workdir: {folder} holds more than {MEMBERS_MAX:,} files; "
                "list what the job does not need in .gitignore"
            )
    if refused:
        raise _cannot_travel(folder, refused)
    return sorted(members, key=lambda member: member.name)


def _walk(folder: Path, root: Path, rules: list[_Rules], refused: list[str]) -> Iterator[Member]:
    try:
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError as error:
        raise CommandFailed(f"workdir: {folder} cannot be read: {error.strerror}") from error
    own = _rules_in(folder)
    rules = [*rules, own] if own is not None else rules
    for entry in entries:
        path = Path(entry.path)
        is_dir = entry.is_dir(follow_symlinks=False)
        if entry.name in _NEVER_PACKED or _is_ignored(path, is_dir, rules):
            continue
        name = path.relative_to(root).as_posix()
        if entry.is_symlink():
            # A link may go while the folder is walked, as in /proc.
            try:
                written = os.readlink(path)  # noqa: PTH115 (the text as written)
            except OSError as error:
                raise CommandFailed(f"workdir: {path} cannot be read: {error.strerror}") from error
            target = _target_inside(path, written, root)
            if target is None:
                refused.append(f"{name} -> {written} (leads out of the folder)")
            else:
                yield Member(name, path, False, False, 0, target)
        elif is_dir:
            yield Member(name, path, True, False, 0)
            yield from _walk(path, root, rules, refused)
        elif entry.is_file(follow_symlinks=False):
            facts = entry.stat(follow_symlinks=False)
            executable = bool(facts.st_mode & stat.S_IXUSR)
            yield Member(name, path, False, executable, facts.st_size)
        else:
            refused.append(f"{name} (not a file, folder or link)")


def _is_ignored(path: Path, is_dir: bool, rules: list[_Rules]) -> bool:
    """As git decides: the nearest `.gitignore` that says anything about the path wins."""
    for one in reversed(rules):
        name = path.relative_to(one.folder).as_posix() + ("/" if is_dir else "")
        said = one.patterns.check_file(name).include
        if said is not None:
            return said
    return False


def _rules_above(root: Path) -> list[_Rules]:
    """The rules of the repository that the folder lies in, from its top down to the folder."""
    above: list[_Rules] = []
    for folder in (root, *root.parents):
        if folder != root:
            found = _rules_in(folder)
            if found is not None:
                above.insert(0, found)
        if (folder / ".git").exists():
            return above
    return []


def _rules_in(folder: Path) -> _Rules | None:
    path = folder / ".gitignore"
    if not path.is_file():
        return None
    from pathspec import GitIgnoreSpec

    try:
        with path.open(encoding="utf-8", errors="surrogateescape") as file:
            text = file.read(_IGNORE_FILE_BYTES_MAX)
        return _Rules(folder, GitIgnoreSpec.from_lines(text.splitlines()))
    except (OSError, ValueError) as error:
        raise CommandFailed(f"workdir: {path} cannot be used: {error}") from error


def _target_inside(link: Path, written: str, root: Path) -> str | None:
    """What the packed link says: relative, and inside the folder; None when it leads out."""
    # Both must stay inside: the text that is packed, and the file that it finally means.
    meant = Path(os.path.normpath(link.parent / written))
    try:
        final = link.resolve(strict=False)
    except (OSError, RuntimeError):
        return None
    if not (meant.is_relative_to(root) and final.is_relative_to(root)):
        return None
    return Path(os.path.relpath(meant, link.parent)).as_posix()


def _cannot_travel(folder: Path, refused: list[str]) -> CommandFailed:
    more = [f"and {len(refused) - _NAMED_MAX} more"] if len(refused) > _NAMED_MAX else []
    return CommandFailed(
        f"workdir: {folder} cannot be packed. Copy what these lead to into it, or list them in "
        ".gitignore:",
        details=[*refused[:_NAMED_MAX], *more],
    )
