"""Lines of history to rows, several in one statement.

Not here: what is told (`app.orchestration.frame.aggregate`), or reading it (`job_read_models`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from app.storage.schema.tables import events
from app.storage.session.ready_statement import cast_of


@dataclass(frozen=True)
class EventRecord:
    """One line of a job's history."""

    job_id: UUID
    seq: int
    at: datetime
    actor: str
    kind: str
    noun: str
    noun_id: UUID | None
    from_state: str | None
    to_state: str | None
    message: str
    data: dict[str, Any]


@dataclass(frozen=True)
class PhaseRecord:
    """From `from_at` on, the machine was in this phase."""

    instance_id: UUID
    session_id: str
    fact_no: int
    job_id: UUID
    phase: str
    from_at: datetime
    fence: int | None
    step: int | None


_NAMES = tuple(column.name for column in events.columns)
_ROWS_PER_STATEMENT = 4
"""Not more than 50 parameters: the driver remembers how to send no longer statements."""


def insert_events(lines: Sequence[EventRecord]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Statements that append the lines in their order, with their parameters."""
    for first in range(0, len(lines), _ROWS_PER_STATEMENT):
        some = lines[first : first + _ROWS_PER_STATEMENT]
        given: dict[str, Any] = {}
        for number, line in enumerate(some):
            fields = vars(line)
            given.update({f"{name}_{number}": fields[name] for name in _NAMES})
            given[f"data_{number}"] = Jsonb(line.data)
        yield _statement(len(some)), given


@lru_cache(maxsize=_ROWS_PER_STATEMENT)
def _statement(count: int) -> str:
    rows = (
        ", ".join(f"%({name}_{number})s::{cast_of(events.c[name].type)}" for name in _NAMES)
        for number in range(count)
    )
    wanted = "), (".join(rows)
    return f"INSERT INTO events ({', '.join(_NAMES)}) VALUES ({wanted})"
