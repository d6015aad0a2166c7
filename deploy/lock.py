"""Writes requirements.lock: `make lock`, after every change of constraints.txt or pyproject.toml.

uv asks PyPI for the SHA-256 of every file of every pinned version, for all platforms, and which
package is needed by which extra is read from what is installed here (`make check` installs it).
torch is left out: the same version has other files on PyTorch's own index than on PyPI, and which
one is meant is for whoever installs. Not here: choosing from the lock (`requirements.py`).
"""

from __future__ import annotations

import importlib.metadata
import platform
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

from packaging.requirements import Requirement
from requirements import BASE, name_of

UNHASHED = "torch"
_HEAD = """\
# Every file of every pinned version by its SHA-256, as PyPI has it; written by `make lock`.
# "for:" names who needs a package: lowtide itself, or an extra of pyproject.toml. torch is not
# here: one version of it has other files on PyTorch's index (CPU) than on PyPI (CUDA).
"""


def pins(constraints: str) -> dict[str, str]:
    """Versions by name."""
    lines = (line.partition("#")[0].strip() for line in constraints.splitlines())
    return {name_of(line): line.partition("==")[2] for line in lines if line}


def groups_of(pyproject: dict[str, list[str]], known: Iterable[str]) -> dict[str, set[str]]:
    """Who needs each pinned package, by name: all that the extras lead to.

    What only another Python or platform needs counts as well, as far as it is pinned.
    """
    pinned, found = set(known), {name: set[str]() for name in known}
    for group, direct in pyproject.items():
        left = [Requirement(one) for one in direct]
        seen: set[tuple[str, frozenset[str]]] = set()
        while left:
            one = left.pop()
            key = (name_of(one.name), frozenset(one.extras))
            if key in seen or key[0] not in pinned:
                continue
            seen.add(key)
            found[key[0]].add(group)
            left += _needed_by(key[0], frozenset(one.extras))
    return found


def _needed_by(name: str, extras: frozenset[str]) -> list[Requirement]:
    try:
        written = importlib.metadata.requires(name) or []
    except importlib.metadata.PackageNotFoundError:
        return []  # pinned for another platform
    needed = [Requirement(one) for one in written]
    return [one for one in needed if _counts(one, extras)]


def _counts(one: Requirement, extras: frozenset[str]) -> bool:
    """Whether any Python or platform that Lowtide runs on needs it."""
    if one.marker is None:
        return True
    return any(
        one.marker.evaluate(
            {
                "extra": extra,
                "python_version": python,
                "python_full_version": f"{python}.0",
                "sys_platform": system,
                "platform_system": system.capitalize(),
                "platform_machine": machine,
            }
        )
        for extra in {"", *extras}
        for python in ("3.11", "3.12", "3.13", "3.14")
        for system in ("linux", "darwin")
        for machine in ("x86_64", "aarch64", "arm64")
    )


def requirement_groups(pyproject: Path) -> dict[str, list[str]]:
    """Direct requirements of Lowtide and of each extra; its build's count as Lowtide's."""
    document = tomllib.loads(pyproject.read_text(encoding="utf-8"))
    project = document["project"]
    base = [*project["dependencies"], *document["build-system"]["requires"]]
    return {BASE: base, **project["optional-dependencies"]}


def _hashed(constraints: Path) -> list[str]:
    """Requirements with hashes, by uv. Raises CalledProcessError with its message on stderr."""
    command = [str(Path(sys.executable).with_name("uv")), "pip", "compile", "--no-deps"]
    command += ["--generate-hashes", "--no-annotate", "--no-header", "--no-emit-package", UNHASHED]
    command += ["--default-index", "https://pypi.org/simple", "--system-certs", "--quiet"]
    command += ["--python-version", platform.python_version(), str(constraints)]
    said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=900)
    return [part.strip() for part in re.split(r"\n(?=\S)", said.stdout) if "--hash" in part]


def main() -> int:
    """Write the lock; nothing is changed where a pin has no hash."""
    constraints = Path("constraints.txt")
    groups = groups_of(requirement_groups(Path("pyproject.toml")), pins(constraints.read_text()))
    hashed = {name_of(part): part for part in _hashed(constraints)}
    missing = sorted(set(groups) - set(hashed) - {UNHASHED})
    if missing:
        print(f"no hashes for {', '.join(missing)}", file=sys.stderr)
        return 1
    parts = [
        f"# for: {' '.join(sorted(groups[name]) or ['nobody'])}\n{hashed[name]}\n"
        for name in sorted(hashed)
    ]
    Path("requirements.lock").write_text(_HEAD + "\n" + "".join(parts), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
