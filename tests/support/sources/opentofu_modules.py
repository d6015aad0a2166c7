"""The OpenTofu modules of deploy/, parsed; and what their providers know, by recorded schemas.

provider_schemas.json is read off the type declarations of the npm packages @cdktf/provider-aws and
@cdktf/provider-google, which are generated from the providers: `readonly x?: T` of a resource's
`…Config` is an optional argument, an interface as T its nested block, a getter of the class an
attribute. A type that is used anew needs its line there. Not here: what must be true of a module
(tests/architecture).
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hcl2

from tests.support.sources.source_tree import ROOT

DEPLOY = ROOT / "deploy"
MODULES = ("aws", "aws/region", "gcp")
META = {"count", "depends_on", "for_each", "lifecycle", "provider"}
_REFERENCE = re.compile(
    r"(?<![\w.\"/-])(data\.)?((?:aws|google)_[a-z0-9_]+)\.([a-z0-9_]+)(?:\[[^]]*\])?(?:\.([a-z_0-9]+))?"
)


@dataclass(frozen=True)
class Block:
    """A resource or a data source: `kind` is its type."""

    kind: str
    name: str
    body: dict[str, Any]
    is_data: bool = False

    @property
    def text(self) -> str:
        """Its values, as one text for references."""
        return json.dumps(self.body)


@functools.cache
def _schemas() -> dict[str, Any]:
    text = Path(__file__).with_name("provider_schemas.json").read_text("utf-8")
    recorded: dict[str, Any] = json.loads(text)
    return recorded


def schemas_source() -> str:
    """Which versions of the providers were recorded."""
    return str(_schemas()["source"])


def schema_of(kind: str) -> dict[str, Any]:
    """`arguments` (each: required, its own arguments if it is a block) and `attributes`."""
    found: dict[str, Any] = _schemas()["types"][kind]
    return found


@functools.cache
def documents(module: str) -> tuple[dict[str, Any], ...]:
    """Its files, parsed."""
    found = []
    for path in sorted((DEPLOY / module).glob("*.tf")):
        with path.open(encoding="utf-8") as file:
            found.append(hcl2.load(file))
    return tuple(found)


def named(module: str, kind: str) -> dict[str, dict[str, Any]]:
    """Variables, outputs or module calls, by name."""
    return {
        first.strip('"'): body
        for document in documents(module)
        for block in document.get(kind, [])
        for first, body in block.items()
    }


def resources(module: str) -> list[Block]:
    """Every resource and data source."""
    return [
        Block(first.strip('"'), second.strip('"'), body, kind == "data")
        for kind in ("resource", "data")
        for document in documents(module)
        for block in document.get(kind, [])
        for first, held in block.items()
        for second, body in held.items()
    ]


def local_values(module: str) -> dict[str, Any]:
    """Every local value."""
    return {
        name: value
        for document in documents(module)
        for block in document.get("locals", [])
        for name, value in block.items()
        if not name.startswith("__")
    }


def text_of(module: str) -> str:
    """All files of a module without comments."""
    lines = []
    for path in sorted((DEPLOY / module).glob("*.tf")):
        lines += [line.split(" # ")[0] for line in path.read_text("utf-8").splitlines()]
    return "\n".join(line for line in lines if not line.lstrip().startswith("#"))


def references(text: str) -> Iterator[tuple[bool, str, str, str]]:
    """(is it data, type, name, attribute or "") of each resource that a text refers to."""
    for data, kind, name, attribute in _REFERENCE.findall(text):
        yield bool(data), kind, name, attribute


def plain(value: Any) -> str:
    """A string of the parser without its quotes."""
    return str(value).strip('"')


def argument_faults(block: Block) -> list[str]:
    """Arguments that the provider does not have, and required ones that are not given."""
    return list(
        _faults(f"{block.kind}.{block.name}", block.body, schema_of(block.kind)["arguments"])
    )


def _faults(where: str, body: dict[str, Any], known: dict[str, Any]) -> Iterator[str]:
    given = {key: value for key, value in body.items() if not key.startswith("__")}
    for key, value in given.items():
        if key in META:
            continue
        if key not in known:
            yield f"{where}: {key} is no argument"
            continue
        for inner in value if isinstance(value, list) and len(known[key]) > 1 else ():
            yield from _faults(f"{where}.{key}", inner, known[key][1])
    for key, told in known.items():
        if told[0] and key not in given:
            yield f"{where}: {key} is required"
