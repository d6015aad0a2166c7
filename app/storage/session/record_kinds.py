"""How the domain's records lie in their tables: loading, what has changed, storing.

Lives here: one `RecordKind` for each record. The records know nothing of it. Not here: which of
them a transaction holds and when they are written (`record_session`).
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any, Generic, TypeVar

from sqlalchemy import Table, bindparam, delete, select, update

from app.domain.lifecycle import entities
from app.storage.schema import money_tables, tables
from app.storage.session.ready_statement import (
    Ready,
    cast_of,
    on_the_way_in,
    on_the_way_out,
)

R = TypeVar("R")
Snapshot = tuple[Any, ...]


class RecordKind(Generic[R]):
    """A record and its table: equal names, in the table's order.

    rank: tables are written in this order, so that a row comes after those it refers to.
    """

    def __init__(self, record: type[R], table: Table, rank: int) -> None:
        self.record = record
        self.table = table
        self.rank = rank
        self.names = tuple(column.name for column in table.columns)
        self.key_names = tuple(column.name for column in table.primary_key.columns)
        self.snapshot = itemgetter(*self.names)
        self._key_places = tuple(self.names.index(name) for name in self.key_names)
        self._in = {column.name: on_the_way_in(column.type) for column in table.columns}
        self._casts = {column.name: cast_of(column.type) for column in table.columns}
        found = [(i, on_the_way_out(column.type)) for i, column in enumerate(table.columns)]
        self._out = tuple((i, process) for i, process in found if process is not None)
        self._updates: dict[tuple[str, ...], str] = {}
        self._inserts: dict[tuple[tuple[str, ...], int], str] = {}
        own = [table.c[name] == bindparam(self.key_parameter(name)) for name in self.key_names]
        self.by_key = Ready(select(*table.columns).where(*own))
        self.delete = Ready(delete(table).where(*own))
        self._own = own

    def key_parameter(self, name: str) -> str:
        """What a part of the key is called among a statement's parameters."""
        return f"{self.table.name}_{name}"

    def key_of(self, record: R) -> tuple[Any, ...]:
        """The primary key."""
        fields = vars(record)
        return tuple(fields[name] for name in self.key_names)

    def key_of_row(self, row: Sequence[Any]) -> tuple[Any, ...]:
        """The primary key in a row of all columns."""
        return tuple(row[place] for place in self._key_places)

    def values(self, row: Sequence[Any]) -> Snapshot:
        """A row of all columns, in the domain's words."""
        found = list(row[: len(self.names)])
        for place, process in self._out:
            found[place] = process(found[place])
        return tuple(found)

    def make(self, values: Snapshot) -> R:
        """The record of a stored row."""
        record = object.__new__(self.record)
        vars(record).update(zip(self.names, values, strict=True))
        return record

    def key_parameters(self, key: Sequence[Any]) -> dict[str, Any]:
        """A key as a statement's parameters."""
        return dict(zip(map(self.key_parameter, self.key_names), key, strict=True))

    def update(
        self, key: Sequence[Any], before: Snapshot, after: Snapshot
    ) -> tuple[str, dict[str, Any]]:
        """The statement that writes what has changed, with its parameters."""
        changed = tuple(
            name
            for name, old, new in zip(self.names, before, after, strict=True)
            if old is not new and old != new
        )
        text = self._updates.get(changed)
        if text is None:
            values: dict[str, Any] = {name: bindparam(name) for name in changed}
            text = Ready(update(self.table).where(*self._own).values(values)).text
            self._updates[changed] = text
        given = self.key_parameters(key)
        new_values = dict(zip(self.names, after, strict=True))
        for name in changed:
            given[name] = self._into(name, new_values[name])
        return text, given

    def insert(self, records: Sequence[R]) -> tuple[str, dict[str, Any]]:
        """The statement that stores new records whose fields are set alike (`set_names`)."""
        names = self.set_names(records[0])
        text = self._inserts.get((names, len(records)))
        if text is None:
            text = self._inserts[names, len(records)] = self._insert_text(names, len(records))
        given = {}
        for number, record in enumerate(records):
            fields, suffix = vars(record), _suffix(number)
            for name in names:
                given[name + suffix] = self._into(name, fields[name])
        return text, given

    def set_names(self, record: R) -> tuple[str, ...]:
        """Columns that are not NULL: only they are sent."""
        fields = vars(record)
        return tuple(name for name in self.names if fields[name] is not None)

    def _into(self, name: str, value: object) -> Any:
        process = self._in[name]
        return value if value is None or process is None else process(value)

    def _insert_text(self, names: tuple[str, ...], count: int) -> str:
        columns = ", ".join(f'"{name}"' for name in names)
        rows = (
            ", ".join(f"%({name}{_suffix(number)})s::{self._casts[name]}" for name in names)
            for number in range(count)
        )
        wanted = "), (".join(rows)
        return f"INSERT INTO {self.table.name} ({columns}) VALUES ({wanted})"


def _suffix(number: int) -> str:
    return f"__{number}" if number else ""


_ORDER: tuple[tuple[type[Any], Table], ...] = (
    (entities.Budget, tables.budgets),
    (entities.Job, tables.jobs),
    (entities.Attempt, tables.attempts),
    (entities.Launch, tables.launches),
    (entities.Instance, tables.instances),
    (entities.AttemptMember, tables.attempt_members),
    (entities.Assignment, money_tables.assignments),
    (entities.CheckpointRecord, tables.checkpoints),
    (entities.Contact, tables.contacts),
)
KINDS: dict[type[Any], RecordKind[Any]] = {
    record: RecordKind(record, table, rank) for rank, (record, table) in enumerate(_ORDER)
}
"""By the record's class."""
