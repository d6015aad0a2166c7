"""The OpenTofu modules, read offline: they parse, and every name in them is declared and used.

Not here: whether a provider takes an argument, which needs its plugin, or applying them.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import hcl2
import pytest

DEPLOY = Path(__file__).parents[2] / "deploy"
MODULES = ("aws", "gcp")
_REFERENCE = re.compile(r"(?<![\w.\"/-])(data\.)?([a-z][a-z0-9_]*)\.([a-zA-Z_][\w-]*)")
_PROVIDER = {"aws": ("aws_",), "gcp": ("google_",)}
_FILE = re.compile(r"\$\{path\.module\}/([\w.-]+)")


def blocks(module: str, kind: str) -> list[tuple[str, ...]]:
    """Names of the blocks of a kind: (name,) of variables, (type, name) of resources."""
    found: list[tuple[str, ...]] = []
    for path in sorted((DEPLOY / module).glob("*.tf")):
        with path.open(encoding="utf-8") as file:
            document: dict[str, Any] = hcl2.load(file)
        for block in document.get(kind, []):
            for first, body in block.items():
                if kind in ("resource", "data"):
                    found += [(first.strip('"'), second.strip('"')) for second in body]
                elif kind == "locals":
                    found.append((first,))
                else:
                    found.append((first.strip('"'),))
    return [name for name in found if not name[0].startswith("__")]


def text_of(module: str) -> str:
    """All files of a module without comments and quoted plain words."""
    lines = []
    for path in sorted((DEPLOY / module).glob("*.tf")):
        lines += [line.split(" # ")[0] for line in path.read_text("utf-8").splitlines()]
    return "\n".join(line for line in lines if not line.lstrip().startswith("#"))


@pytest.mark.parametrize("module", MODULES)
def test_every_variable_is_declared_described_and_used(module: str):
    declared = Counter(blocks(module, "variable"))
    assert max(declared.values()) == 1
    used = {(name,) for name in re.findall(r"\bvar\.(\w+)", text_of(module))}
    assert used == set(declared)
    assert text_of(module).count("description") >= len(declared)


@pytest.mark.parametrize("module", MODULES)
def test_every_reference_leads_to_something(module: str):
    resources, data = set(blocks(module, "resource")), set(blocks(module, "data"))
    assert len(blocks(module, "resource")) == len(resources) > 5
    local = {name for (name,) in blocks(module, "locals")}
    referred = 0
    for is_data, kind, name in _REFERENCE.findall(text_of(module)):
        if kind == "local":
            assert name in local, f"local.{name}"
        elif is_data:
            assert (kind, name) in data, f"data.{kind}.{name}"
        elif kind.startswith(_PROVIDER[module]):
            assert (kind, name) in resources, f"{kind}.{name}"
            referred += 1
    assert referred > 5


@pytest.mark.parametrize("module", MODULES)
def test_the_files_that_a_module_reads_are_there(module: str):
    named = _FILE.findall(text_of(module))
    assert named
    for name in named:
        assert (DEPLOY / module / name).is_file(), name


@pytest.mark.parametrize("module", MODULES)
def test_a_provider_is_pinned_and_something_comes_out(module: str):
    assert re.search(r"required_providers\s*{", text_of(module))
    assert re.search(r'version\s*=\s*"[~>=]', text_of(module))
    assert blocks(module, "output")
