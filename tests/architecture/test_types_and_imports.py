"""What a function takes and needs can be read in its file: typed values, imports at the top."""

import ast
from collections.abc import Iterator

from tests.support.sources.source_tree import SourceFile, source_files

_OURS = {"app", "trainer", "workers"}
_MAPPINGS = {"dict", "Mapping", "MutableMapping", "OrderedDict", "defaultdict"}


def _imports_in_functions(tree: ast.Module) -> set[tuple[int, str]]:
    """(line, module) of each import of a module of ours that stands in a function."""
    found = set()
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.ImportFrom):
                found |= {(node.lineno, node.module or "")}
            elif isinstance(node, ast.Import):
                found |= {(node.lineno, one.name) for one in node.names}
    return {(line, module) for line, module in found if module.partition(".")[0] in _OURS}


def _composes(file: SourceFile) -> bool:
    """Where a program's parts are chosen: it loads only those that it uses."""
    return file.name == "app/bootstrap.py" or file.name.startswith("app/cli/")


def test_only_composition_roots_import_when_they_are_called():
    """An import in a function hides what a module needs, and most often a cycle.

    What is too heavy for all who import a module is passed to it: as `Runtime.make_placement`,
    which loads numpy for the worker alone.
    """
    hidden = [
        f"{file.name}:{line} imports {module}"
        for file in source_files()
        if file.room in _OURS and not _composes(file)
        for line, module in sorted(_imports_in_functions(file.tree))
    ]
    assert hidden == [], "import it at the top, or have it passed in by who composes the program"


def _loose_mappings(tree: ast.Module) -> Iterator[int]:
    """Lines that name a mapping with values of any type."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript):
            base = node.value
            name = base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "")
            values = {getattr(one, "id", "") for one in ast.walk(node.slice)}
            if name in _MAPPINGS and "Any" in values:
                yield node.lineno


def test_rules_and_controllers_know_the_keys_of_what_they_read():
    """A `dict[str, Any]` hides a key that is misspelt, and the unit of a number, from the checker.

    JSON at the edge has a TypedDict; what is worked on is a dataclass.
    """
    loose = [
        f"{file.name}:{line}"
        for file in source_files()
        if file.name.startswith(("app/domain/", "app/orchestration/"))
        for line in sorted(set(_loose_mappings(file.tree)))
    ]
    assert loose == [], "give it a TypedDict or a dataclass with units"


def test_both_rules_bite():
    source = (
        "import app.x\n"
        "from trainer import y\n"
        "Rows = list[dict[str, Any]]\n"
        "Fine = dict[str, int]\n"
        "def f(given: typing.Mapping[str, Any | None]):\n"
        "    def g():\n"
        "        from app.domain import z\n"
        "        import json, workers.w\n"
    )
    tree = ast.parse(source)
    assert _imports_in_functions(tree) == {(7, "app.domain"), (8, "workers.w")}
    assert sorted(_loose_mappings(tree)) == [3, 5]
