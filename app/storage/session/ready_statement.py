"""Statements that are built once and run as text: no building, no look-up and no wrapping per use.

Lives here: a statement of SQLAlchemy turned into PostgreSQL's text, with what its parameters need
on their way in. Not here: running it (`record_session`), or rows as records (`record_kinds`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import Dialect, Executable, Table
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.sql import visitors
from sqlalchemy.sql.elements import ClauseElement
from sqlalchemy.types import TypeEngine

DIALECT: Dialect = PGDialect_psycopg()  # type: ignore[no-untyped-call]
_FLOAT8_OID = 701
Processor = Callable[[Any], Any]


class Ready:
    """One statement. What varies are parameters named with `bindparam`; all else is fixed.

    text: with `%(name)s` parameters, each cast to its type, so that PostgreSQL needs no types from
    us and one plan serves NULLs and values alike. reads: the tables in it, by name.
    """

    def __init__(self, statement: Executable, reads: frozenset[str] | None = None) -> None:
        """reads: where the statement is text, which does not tell; None there means any."""
        if not isinstance(statement, ClauseElement):
            raise TypeError(f"{statement!r} cannot be turned into text")
        compiled = statement.compile(dialect=DIALECT)
        self.text = str(compiled)
        if "POSTCOMPILE" in self.text:
            raise ValueError(f"a list of unknown length has no fixed text: {self.text}")
        tables = frozenset(
            part.name for part in visitors.iterate(statement) if isinstance(part, Table)
        )
        self.reads = reads if reads is not None else tables or None
        processors: Mapping[str, Processor] = getattr(compiled, "_bind_processors", {})
        self._fixed = {
            name: processors[name](value) if name in processors else value
            for name, value in compiled.params.items()
        }
        self._processors = tuple(processors.items())

    def parameters(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """What the driver is to be given."""
        found = {**self._fixed, **given}
        for name, process in self._processors:
            if name in given:
                found[name] = process(given[name])
        return found


def on_the_way_in(kind: TypeEngine[Any]) -> Processor | None:
    """What turns a value of this column type into what the driver takes."""
    found: Processor | None = kind.dialect_impl(DIALECT).bind_processor(DIALECT)
    return found


def on_the_way_out(kind: TypeEngine[Any]) -> Processor | None:
    """What turns the driver's value into one of this column type."""
    found: Processor | None = kind.dialect_impl(DIALECT).result_processor(DIALECT, _FLOAT8_OID)
    return found


def cast_of(kind: TypeEngine[Any]) -> str:
    """The type's name in PostgreSQL."""
    return str(kind.compile(DIALECT))
