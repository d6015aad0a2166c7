"""The project's own source files, parsed, for tests of its shape.

Not here: the rules (tests/architecture).
"""

from __future__ import annotations

import ast
import functools
import gc
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
ROOMS = ("app", "workers", "trainer", "migrations", "tests")


@dataclass(frozen=True)
class SourceFile:
    """A Python file: its path below the root, text and syntax tree."""

    name: str
    text: str
    tree: ast.Module

    @property
    def room(self) -> str:
        """The top-level folder."""
        return self.name.partition("/")[0]

    @property
    def line_count(self) -> int:
        """Lines, the last one included."""
        return len(self.text.splitlines())


@functools.cache
def source_files() -> tuple[SourceFile, ...]:
    """Every Python file of the project, by name."""
    paths = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))
    # All of it stays: looking for garbage among millions of new nodes takes longer than parsing.
    gc.disable()
    try:
        return tuple(
            SourceFile(path.relative_to(ROOT).as_posix(), text, ast.parse(text))
            for path in paths
            if (text := path.read_text(encoding="utf-8")) is not None
        )
    finally:
        gc.freeze()
        gc.enable()


@functools.cache
def _trees() -> dict[str, ast.Module]:
    """Syntax trees by the files' names."""
    return {file.name: file.tree for file in source_files()}


def imported_modules(file: SourceFile) -> set[str]:
    """Full names of the modules that a file imports, wherever in it the import stands."""
    found: set[str] = set()
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


@functools.cache
def strings_of(path: Path) -> tuple[tuple[int, str], ...]:
    """(line, text) of every literal that is no comment, docstrings of commands included."""
    return tuple(_strings_of(path))


def _strings_of(path: Path) -> Iterator[tuple[int, str]]:
    name = path.relative_to(ROOT)
    tree, commands = _trees()[name.as_posix()], "cli" in name.parts
    comments = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) not in comments:
                yield node.lineno, node.value
        elif isinstance(node, ast.FunctionDef) and commands and not node.name.startswith("_"):
            yield node.lineno, ast.get_docstring(node) or ""
