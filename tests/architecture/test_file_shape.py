"""Every file has one subject that fits its name, and a size that fits a head.

Each rule is one test over all files: a test per rule and file would cost more than the rules.
"""

import ast
import subprocess
from collections import Counter

from tests.support.sources.source_tree import ROOT, SourceFile, source_files

LINES_MAX = {"tests": 500}
LINES_MAX_ELSEWHERE = 400
FUNCTION_LINES_MAX = 70
FILES_MAX = 16
# Names that say nothing: whatever is put there has a better place.
BANNED_NAMES = {
    "utils", "util", "helpers", "helper", "common", "misc", "manager", "base", "core", "service",
}  # fmt: skip
UNFINISHED = ("TO" + "DO", "FIX" + "ME", "X" * 3)


def _lines_max(file: SourceFile) -> int:
    return LINES_MAX.get(file.room, LINES_MAX_ELSEWHERE)


def test_a_file_is_not_too_long():
    long = [
        f"{file.name}: {file.line_count} lines, at most {_lines_max(file)}"
        for file in source_files()
        if file.line_count > _lines_max(file)
    ]
    assert long == []


def test_a_folder_is_not_too_full():
    """Migrations apart: they follow each other, and nobody looks for one by its subject."""
    folders = Counter(
        file.name.rpartition("/")[0] for file in source_files() if file.room != "migrations"
    )
    full = [f"{folder}: {count} files" for folder, count in folders.items() if count > FILES_MAX]
    assert full == [], f"at most {FILES_MAX} each: divide it into rooms"


def test_no_two_files_of_tests_have_one_name():
    """pytest imports them by that name alone, and then collects neither."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []


def test_no_folder_is_made_for_one_file():
    """A file may stand alone above rooms (`app/api/main.py`), and be a program (`__main__`)."""
    named = [file.name for file in source_files() if not file.name.endswith("/__init__.py")]
    folders = Counter(name.rpartition("/")[0] for name in named)
    alone = [
        name
        for name in named
        if folders[folder := name.rpartition("/")[0]] == 1
        and not any(other.startswith(f"{folder}/") for other in folders)
        and not name.endswith("/__main__.py")
    ]
    assert alone == [], "put it into the room where people look for it"


def test_a_function_is_not_too_long():
    long = [
        f"{file.name}: {node.name} has {node.end_lineno - node.lineno + 1} lines"
        for file in source_files()
        for node in ast.walk(file.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno + 1 > FUNCTION_LINES_MAX
    ]
    assert long == [], f"at most {FUNCTION_LINES_MAX} lines each"


def test_a_file_says_what_lives_in_it():
    silent = [
        file.name
        for file in source_files()
        if (file.text.strip() or not file.name.endswith("__init__.py"))
        and not ast.get_docstring(file.tree)
    ]
    assert silent == [], "each begins with a docstring"


def test_names_of_files_and_folders_say_something():
    empty = [
        file.name
        for file in source_files()
        if BANNED_NAMES & {part.removesuffix(".py").strip("_") for part in file.name.split("/")}
    ]
    assert empty == [], "name a file after what it does"


def test_no_key_is_among_the_files():
    """A program that ran here may have left one, and whoever has it opens a database's secrets."""
    listed = ["git", "ls-files", "--", "*.key"]
    kept = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert kept.stdout == ""


def test_nothing_is_left_for_later():
    unfinished = [
        f"{file.name}: {word}"
        for file in source_files()
        for word in UNFINISHED
        if word in file.text
    ]
    assert unfinished == [], "finish it, or open an issue"


def test_the_rules_see_the_whole_tree():
    rooms = {file.room for file in source_files()}
    assert rooms == {"app", "workers", "trainer", "migrations", "tests"}
    assert len(source_files()) > 500


def test_no_two_files_define_a_public_class_of_one_name():
    """Who searches a name finds one class. Tests and migrations are apart."""
    files: dict[str, set[str]] = {}
    for file in source_files():
        if file.room in ("app", "workers", "trainer"):
            for node in file.tree.body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    files.setdefault(node.name, set()).add(file.name)
    assert {name: sorted(found) for name, found in files.items() if len(found) > 1} == {}
