"""Every file has one subject that fits its name, and a size that fits a head."""

import ast

import pytest

from tests.support.source_tree import SourceFile, source_files

LINES_MAX = {"tests": 500}
LINES_MAX_ELSEWHERE = 400
FUNCTION_LINES_MAX = 70
# Names that say nothing: whatever is put there has a better place.
BANNED_NAMES = {
    "utils", "util", "helpers", "helper", "common", "misc", "manager", "base", "core", "service",
}  # fmt: skip
UNFINISHED = ("TO" + "DO", "FIX" + "ME", "X" * 3)

every_file = pytest.mark.parametrize("file", source_files(), ids=lambda file: file.name)


@every_file
def test_a_file_is_not_too_long(file: SourceFile):
    allowed = LINES_MAX.get(file.room, LINES_MAX_ELSEWHERE)
    assert file.line_count <= allowed, f"{file.name}: {file.line_count} lines, at most {allowed}"


@every_file
def test_a_function_is_not_too_long(file: SourceFile):
    long = [
        f"{node.name} ({node.end_lineno - node.lineno + 1} lines)"
        for node in ast.walk(file.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno + 1 > FUNCTION_LINES_MAX
    ]
    assert long == [], f"{file.name}: at most {FUNCTION_LINES_MAX} lines each"


@every_file
def test_a_file_says_what_lives_in_it(file: SourceFile):
    if file.text.strip() or not file.name.endswith("__init__.py"):
        assert ast.get_docstring(file.tree), f"{file.name} begins without a docstring"


@every_file
def test_names_of_files_and_folders_say_something(file: SourceFile):
    words = {part.removesuffix(".py").strip("_") for part in file.name.split("/")}
    assert words.isdisjoint(BANNED_NAMES), f"{file.name}: name it after what it does"


@every_file
def test_nothing_is_left_for_later(file: SourceFile):
    found = [word for word in UNFINISHED if word in file.text]
    assert found == [], f"{file.name}: finish it, or open an issue"
