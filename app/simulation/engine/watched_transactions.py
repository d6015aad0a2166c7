"""The control plane's transactions, watched: one at a time, faulty on demand, with a memory.

Lives here: the unit-of-work factory of a simulation. It knows whether a transaction is open (a
call to a cloud inside one is a bug), can lose a commit or its answer, and remembers which jobs
and which columns were written, so that nothing is asked again that cannot have changed.
Not here: the unit of work itself, which is the production one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson
from sqlalchemy import Engine, event

from app.ports.wakeups import Wakeups
from app.storage.session.record_session import RecordSession
from app.storage.unit_of_work import PostgresUnitOfWorkFactory, UnitOfWork

_UPDATE = re.compile(r"\bUPDATE\s+(\w+)\s+SET\s(.*?)(?:\sFROM\s|\sWHERE\s|$)", re.S)
_OTHER_WRITE = re.compile(r"\b(?:INSERT\s+INTO|DELETE\s+FROM)\s+(\w+)")
_COLUMN = re.compile(r"(\w+)\s*=")
_WORD = re.compile(r"\w+")

Write = tuple[str, frozenset[str] | None]
"""Table, and the columns set; None: whole rows came or went."""


class Interrupted(Exception):
    """The process or its connection died around a commit; whether it held is not known to it."""


class WatchedTransactions:
    """Implements `UnitOfWorkFactory`."""

    def __init__(
        self, engine: Engine, wakeups: Wakeups, read_clock: Callable[[], datetime]
    ) -> None:
        self._factory = PostgresUnitOfWorkFactory(engine, wakeups, read_clock, self._may_die)
        self._engine = engine
        self._read_clock = read_clock
        self.is_open = False
        self.count = 0
        self.lose_commits = 0
        self.lose_answers = 0
        self.touched_jobs: set[UUID] = set()
        self.on_write: Callable[[Write], None] | None = None
        self._marks: dict[UUID, set[str]] = {}
        self._parsed: dict[str, tuple[Write, ...]] = {}
        self._changed: set[UUID] = set()
        self._wrote = False
        self._reading: set[str] | None = None
        self._spared = False
        event.listen(engine, "before_cursor_execute", self._see)

    @contextmanager
    def __call__(self) -> Iterator[UnitOfWork]:
        """A transaction; raises Interrupted where a fault takes its commit or its answer."""
        if self.is_open:
            raise AssertionError("a transaction was opened inside another")
        self.is_open = True
        self.count += 1
        try:
            with self._factory() as uow:
                yield uow
        finally:
            self.is_open = False
            changed, wrote = self._changed, self._wrote
            self._changed, self._wrote = set(), False
        for job_id in changed:
            self._marks.pop(job_id, None)
        self.touched_jobs |= changed
        if self.lose_answers and wrote and not self._spared:
            self.lose_answers -= 1
            raise Interrupted("the commit held, and its answer was lost")

    def _may_die(self) -> None:
        if self.lose_commits and self._wrote and not self._spared:
            self.lose_commits -= 1
            raise Interrupted("the process died before its commit")

    @contextmanager
    def spared(self) -> Iterator[None]:
        """Faults of commits are kept for others than the transactions inside."""
        self._spared = True
        try:
            yield
        finally:
            self._spared = False

    @contextmanager
    def look(self) -> Iterator[UnitOfWork]:
        """Read without a transaction around it; what is read must be of one instant anyway."""
        session = RecordSession(self._engine, autocommit=True)
        try:
            yield UnitOfWork(session, self._read_clock)
        finally:
            session.close()

    def forget(self) -> None:
        """The rows are others than were seen: nothing is known of any job."""
        self._marks.clear()

    def mark(self, job_id: UUID, reader: str) -> None:
        """The reader has seen the job as it is now."""
        self._marks.setdefault(job_id, set()).add(reader)

    def changed_since(self, job_id: UUID, reader: str) -> bool:
        """Whether the job was written since the reader marked it."""
        return reader not in self._marks.get(job_id, ())

    @contextmanager
    def reading(self) -> Iterator[set[str]]:
        """Collect every word of the statements that run inside."""
        words: set[str] = set()
        self._reading = words
        try:
            yield words
        finally:
            self._reading = None

    def _see(
        self, _connection: Any, _cursor: Any, statement: str, parameters: Any, *_rest: Any
    ) -> None:
        if self._reading is not None:
            self._reading.update(_WORD.findall(statement))
        if statement not in self._parsed:
            self._parsed[statement] = _parse(statement)
        for write in self._parsed[statement]:
            self._wrote = True
            if write[0] == "jobs":
                self._record_jobs(parameters)
            if self.on_write is not None:
                self.on_write(write)

    def _record_jobs(self, parameters: Any) -> None:
        many = parameters if isinstance(parameters, list) else [parameters]
        named = ("jobs_id", "job_id", "id")
        for row in many:
            self._changed.update(row[name] for name in named if name in row)
            for submitted in orjson.loads(row.get("submissions", "[]")):
                self._changed.add(UUID(submitted["job_id"]))


def _parse(statement: str) -> tuple[Write, ...]:
    """Every write of a statement; one may hide behind a WITH."""
    updates = [
        (found[1], frozenset(_COLUMN.findall(found[2]))) for found in _UPDATE.finditer(statement)
    ]
    others: list[Write] = [(found[1], None) for found in _OTHER_WRITE.finditer(statement)]
    return (*updates, *others)
