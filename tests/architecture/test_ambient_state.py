"""Time, dice and the environment come in through one door each."""

import ast
import re

from tests.support.sources.source_tree import SourceFile, source_files

# Programs that start other programs pass their environment on; they read no setting from it.
_PASS_ENVIRONMENT_ON = (
    "app/adapters/embedded/",
    "app/adapters/providers/local/",
    "app/cli/demo/demo_control_plane.py",
)
_SQL_CLOCKS_AND_DICE = re.compile(
    r"\b(now|gen_random_uuid|uuidv4|uuidv7|random|nextval|statement_timestamp"
    r"|transaction_timestamp|clock_timestamp)\s*\(|\bCURRENT_(TIMESTAMP|DATE|TIME)\b"
)
# The one statement that asks the database for the time.
# The unit of work's own reading, and the one that comes back with a job's lock; and how long
# transactions have been open, which the database began by its own clock; and an exchange in one
# statement, which needs no round trip for the time.
_CLOCK_READERS = (
    "app/storage/instances/contact_statements.py",
    "app/storage/money/ledger_audit_store.py",
    "app/storage/unit_of_work.py",
    "app/storage/jobs/claim_statements.py",
)


def _app_files() -> list[SourceFile]:
    return [file for file in source_files() if file.room in ("app", "workers")]


def test_only_the_settings_read_the_environment():
    for file in _app_files():
        reads = [
            node
            for node in ast.walk(file.tree)
            if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "os"
            and node.attr in ("environ", "environb", "getenv")
        ]
        if file.name.startswith(_PASS_ENVIRONMENT_ON):
            assert not re.search(r"environ(\.get\(|\[)\s*f?[\"']LOWTIDE_", file.text), file.name
        else:
            assert reads == [], f"{file.name}: take it from app.settings"


def test_no_statement_asks_the_database_for_time_ids_or_dice():
    found = {
        (file.name, hit.group())
        for file in _app_files()
        if file.name.startswith(("app/storage/", "app/api/", "app/orchestration/"))
        for text in _sql_texts(file)
        for hit in _SQL_CLOCKS_AND_DICE.finditer(text)
    }
    assert found == {(reader, "clock_timestamp(") for reader in _CLOCK_READERS}


def _sql_texts(file: SourceFile) -> list[str]:
    """String literals that are no docstrings, and calls of SQLAlchemy's `func`."""
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(file.tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    strings = [
        node.value
        for node in ast.walk(file.tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and id(node) not in docstrings
    ]
    calls = [
        f"{node.attr}("
        for node in ast.walk(file.tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "func"
    ]
    return strings + calls
