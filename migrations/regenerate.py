"""Writes migrations 0001 to 0005 from the tables in code, until the first release freezes them.

Run `make migrate-regenerate` after a change of `tables` or `money_tables`. After the first
release a change of the schema is a new migration and this file goes away. Not here: triggers
(0006, by hand).
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from alembic.autogenerate.api import AutogenContext
from alembic.autogenerate.render import render_op
from alembic.operations.ops import (
    AddConstraintOp,
    CreateIndexOp,
    CreateTableOp,
    DropTableOp,
    MigrateOperation,
)
from alembic.runtime.migration import MigrationContext
from sqlalchemy import ForeignKeyConstraint, Table, UniqueConstraint
from sqlalchemy.dialects import postgresql

from app.adapters.postgres import column_types, money_tables, tables

VERSIONS = Path(__file__).parent / "versions"
WIDE = 50
"""Columns of a table whose creation would be too long for one function."""
# Its GiST operators for uuid let one exclusion constraint keep assignments disjoint.
EXTENSION = "btree_gist"


def regenerate() -> list[Path]:
    """Write the files and format them; returns their paths."""
    written = []
    before = None
    for revision, (verb_noun, chosen) in enumerate(_groups().items(), start=1):
        written.append(_write(f"{revision:04d}", before, verb_noun, chosen))
        before = f"{revision:04d}"
    for arguments in (["check", "--fix", "--select", "I,F401"], ["format"]):
        subprocess.run(
            [sys.executable, "-m", "ruff", *arguments, "--quiet", *map(str, written)],
            check=True,
            timeout=60,
        )
    return written


def _groups() -> dict[str, list[Table]]:
    """The tables of each migration, every table after those that it refers to."""
    ordered = tables.metadata.sorted_tables
    money = [table for table in ordered if table in vars(money_tables).values()]
    instance = [t for t in ordered if t not in money and _needs(t, "instances")]
    referred = {key.column.table for table in ordered for key in table.foreign_keys}
    alone = [t for t in ordered if not t.foreign_keys and t not in {*referred, *money}]
    owner = [t for t in ordered if t.name in ("projects", "api_keys", "budgets")]
    return {
        "create_project_tables": owner,
        "create_job_tables": [t for t in ordered if t not in {*money, *instance, *alone, *owner}],
        "create_instance_tables": instance,
        "create_money_tables": money,
        "create_operations_tables": alone,
    }


def _needs(table: Table, name: str) -> bool:
    referred = {key.column.table for key in table.foreign_keys}
    return table.name == name or any(_needs(other, name) for other in referred - {table})


def _write(revision: str, before: str | None, verb_noun: str, chosen: list[Table]) -> Path:
    context = _context()
    parts = [_head(revision, before, verb_noun)]
    calls, functions = [], []
    for table in chosen:
        creation = CreateTableOp.from_table(table)
        keys = _keys_apart(creation) if len(table.columns) > WIDE else []
        functions.append(_function(f"_create_{table.name}", [_code(context, creation)]))
        calls.append(f"_create_{table.name}()")
        if keys:
            lines = [_code(context, key) for key in keys]
            functions.append(_function(f"_constrain_{table.name}", lines))
            calls.append(f"_constrain_{table.name}()")
        indexes = sorted(table.indexes, key=lambda index: str(index.name))
        index_lines = [_code(context, CreateIndexOp.from_index(index)) for index in indexes]
        if index_lines:
            functions.append(_function(f"_index_{table.name}", index_lines))
            calls.append(f"_index_{table.name}()")
    undo = [_code(context, DropTableOp.from_table(table)) for table in reversed(chosen)]
    if before is None:
        calls.insert(0, f'op.execute("CREATE EXTENSION IF NOT EXISTS {EXTENSION}")')
        undo.append(f'op.execute("DROP EXTENSION IF EXISTS {EXTENSION}")')
    parts.append(_function("upgrade", ['"""Create the tables."""', *calls]))
    parts.append(_function("downgrade", ['"""Drop the tables."""', *undo]))
    path = VERSIONS / f"{revision}_{verb_noun}.py"
    path.write_text("\n\n".join([*parts, *functions]) + "\n", encoding="utf-8")
    return path


def _keys_apart(creation: CreateTableOp) -> list[MigrateOperation]:
    """Take the unique and the foreign keys out of a table's creation; they are added after it."""
    kinds = (UniqueConstraint, ForeignKeyConstraint)
    keys = [item for item in creation.columns if isinstance(item, kinds)]
    creation.columns = [item for item in creation.columns if not isinstance(item, kinds)]
    by_name = sorted(keys, key=lambda key: str(key.name))
    return [AddConstraintOp.from_constraint(key) for key in by_name]


def _head(revision: str, before: str | None, verb_noun: str) -> str:
    return f'''"""{verb_noun.replace("_", " ").capitalize()}.

Written by `make migrate-regenerate` from the tables in code; do not edit.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = {revision!r}
down_revision = {before!r}
branch_labels = None
depends_on = None
'''


def _function(name: str, lines: Iterable[str]) -> str:
    body = "\n".join("    " + line for text in lines for line in text.splitlines())
    return f"def {name}() -> None:\n{body}\n"


def _code(context: AutogenContext, operation: Any) -> str:
    return "\n".join(render_op(context, operation))


def _context() -> AutogenContext:
    migration = MigrationContext.configure(
        dialect=postgresql.dialect(),  # type: ignore[no-untyped-call]
        opts={"target_metadata": tables.metadata},
    )
    return AutogenContext(
        migration,
        metadata=tables.metadata,
        opts={
            "sqlalchemy_module_prefix": "sa.",
            "alembic_module_prefix": "op.",
            "user_module_prefix": None,
            "render_as_batch": False,
            "render_item": _render_item,
            "target_metadata": tables.metadata,
        },
    )


def _render_item(kind: str, item: Any, _context: AutogenContext) -> str | bool:
    """The column types of this project are text in the database; a migration must not need them."""
    if kind == "type" and isinstance(item, column_types.Word | column_types.PoolKey):
        return "sa.Text()"
    return False


if __name__ == "__main__":
    for written_path in regenerate():
        print(f"wrote {written_path.relative_to(Path.cwd())}")
