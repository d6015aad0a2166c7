"""Writes what the runtime consists of, as CycloneDX JSON: `sbom.py FILE`, or `make sbom`.

Components are the packages that are installed here and that the lock gives to Lowtide or one of its
extras, but not those that only tests and tools need. Not here: the servers' images and the system.
"""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Iterator
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from requirements import BASE, name_of, read_lock

_TOOLS = frozenset({"dev"})


def runtime_packages(lock: str) -> set[str]:
    """Names of what runs: the lock's packages but for tools alone, and torch, which it lacks."""
    return {"torch", *(one.name for one in read_lock(lock) if one.groups - _TOOLS)}


def installed(names: set[str]) -> Iterator[importlib.metadata.Distribution]:
    """Those of them that are installed here, by name."""
    found = {name_of(one.metadata["Name"]): one for one in importlib.metadata.distributions()}
    return (found[name] for name in sorted(names & set(found)))


def component_of(package: importlib.metadata.Distribution) -> Component:
    """A package as PyPI names it, with the licence that it states."""
    name, version = name_of(package.metadata["Name"]), package.version
    stated = package.metadata.get("License-Expression") or package.metadata.get("License") or ""
    # Older packages have the whole text there.
    licences = [LicenseFactory().make_from_string(stated)] if 0 < len(stated) <= 100 else []
    purl = PackageURL("pypi", name=name, version=version)
    return Component(
        name=name,
        version=version,
        type=ComponentType.LIBRARY,
        bom_ref=str(purl),
        purl=purl,
        licenses=licences,
    )


def bill_of_materials(lock: str) -> Bom:
    """Lowtide and all that it consists of."""
    bom = Bom(components=[component_of(one) for one in installed(runtime_packages(lock))])
    own = importlib.metadata.version(BASE)
    root = Component(name=BASE, version=own, type=ComponentType.APPLICATION, bom_ref=BASE)
    bom.metadata.component = root
    bom.register_dependency(root, bom.components)
    return bom


def main(target: str) -> int:
    """Write it."""
    lock = Path("requirements.lock").read_text(encoding="utf-8")
    document = JsonV1Dot6(bill_of_materials(lock)).output_as_string(indent=2)
    Path(target).write_text(document + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
