"""One transaction's records and statements: what was read, what has changed, and the connection.

A unit of work in the small: each row is one object per transaction, and what has changed in it is
written before anything reads its table, or at the end. Statements are run as text
(`ready_statement`, `statement_runner`); any other statement of SQLAlchemy still works, at its usual
cost. Not here: which statements there are (repositories), or how records lie in tables
(`record_kinds`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

import psycopg
from sqlalchemy import Connection, Engine, Executable, PoolProxiedConnection
from sqlalchemy.engine import CursorResult
from sqlalchemy.exc import DBAPIError

from app.storage.session.joined_inserts import PARAMETERS_MAX, joined
from app.storage.session.ready_statement import DIALECT, Ready
from app.storage.session.record_kinds import KINDS, RecordKind, Snapshot
from app.storage.session.statement_runner import (
    COMMIT,
    Statement,
    StatementFailed,
    StatementRunner,
)

R = TypeVar("R")
Row = tuple[Any, ...]
_Key = tuple[type[Any], tuple[Any, ...]]


class RecordSession:
    """A transaction that begins with its first statement. Raises SQLAlchemy's errors."""

    def __init__(self, engine: Engine, *, autocommit: bool = False) -> None:
        """autocommit: each statement stands for itself; for looking only."""
        self._engine = engine
        self._autocommit = autocommit
        self._pooled: PoolProxiedConnection | None = None
        self._driver: psycopg.Connection[Any] | None = None
        self._runner: StatementRunner | None = None
        self._wrapped: Connection | None = None
        self._held: dict[_Key, tuple[Any, Snapshot]] = {}
        self._new: list[Any] = []
        self._deleted: list[Any] = []
        self._appended: list[Callable[[], Iterable[Statement]]] = []
        self._appended_inserts: list[Callable[[], Iterable[Statement]]] = []
        self._spoiled = False

    # --- records ---

    def get(self, record: type[R], *key: Any) -> R | None:
        """The record of a key: the one held already, or read now."""
        kind = KINDS[record]
        held = self._held.get((record, key))
        if held is not None:
            known: R = held[0]
            return known
        return self.one(record, kind.by_key, kind.key_parameters(key))

    def one(
        self, record: type[R], statement: Ready, parameters: Mapping[str, Any], again: bool = False
    ) -> R | None:
        """The only record that a statement finds."""
        return next(iter(self.all(record, statement, parameters, again)), None)

    def all(
        self, record: type[R], statement: Ready, parameters: Mapping[str, Any], again: bool = False
    ) -> list[R]:
        """Records of rows that begin with all columns of the table, in its order.

        again: what is held already is read anew, as after waiting for a lock.
        """
        kind: RecordKind[R] = KINDS[record]
        rows = self.rows(statement, parameters)
        return [self._hold(kind, row, again) for row in rows]

    def hold(self, record: type[R], row: Row, again: bool = False) -> R:
        """The record of one such row."""
        kind: RecordKind[R] = KINDS[record]
        return self._hold(kind, row, again)

    def add(self, record: Any) -> None:
        """Store a new record with the next flush."""
        self._new.append(record)

    def delete(self, record: Any) -> None:
        """Take a record out with the next flush."""
        if any(one is record for one in self._new):
            self._new = [one for one in self._new if one is not record]
        else:
            self._deleted.append(record)

    def renew(self, record: type[Any], key: tuple[Any, ...], **fields: Any) -> None:
        """A statement has changed these fields: what is held shows them."""
        held = self._held.get((record, key))
        if held is not None:
            vars(held[0]).update(fields)
            self._held[record, key] = (held[0], KINDS[record].snapshot(vars(held[0])))

    def flush(self) -> None:
        """Write what has changed, all in one round trip, so that the store's rules speak now."""
        waiting = self._collect()
        if waiting:
            self._write(waiting)

    # --- statements ---

    def rows(self, statement: Ready, parameters: Mapping[str, Any] | None = None) -> list[Row]:
        """All rows of a statement."""
        self._flush_for(statement)
        (found,) = self._send([(statement.text, statement.parameters(parameters or {}))])
        return found

    def rows_alone(self, statement: Ready, parameters: Mapping[str, Any]) -> list[Row]:
        """All rows of a statement that is a transaction by itself: one round trip, commit included.

        Before any other of the session, which may go on with a transaction; the statement must bear
        to be sent twice.
        """
        if self._runner is not None:
            raise RuntimeError("a transaction has begun: nothing in it stands alone")
        self._autocommit = True
        try:
            return self.rows(statement, parameters)
        finally:
            self._autocommit = False
            if self._driver is not None and self._driver.autocommit and not self._driver.closed:
                self._driver.autocommit = False

    def row(self, statement: Ready, parameters: Mapping[str, Any] | None = None) -> Row | None:
        """The first row."""
        return next(iter(self.rows(statement, parameters)), None)

    def scalar(self, statement: Ready, parameters: Mapping[str, Any] | None = None) -> Any:
        """The first column of the first row; None without one."""
        found = self.row(statement, parameters)
        return None if found is None else found[0]

    def instant(
        self, statement: Ready, parameters: Mapping[str, Any] | None = None
    ) -> datetime | None:
        """The only value of a statement that looks for a point in time."""
        found: datetime | None = self.scalar(statement, parameters)
        return found

    def ids(self, statement: Ready, parameters: Mapping[str, Any]) -> list[UUID]:
        """The first column of all rows, of a statement that looks for ids."""
        return [row[0] for row in self.rows(statement, parameters)]

    def write(self, statement: Ready, many: Sequence[Mapping[str, Any]]) -> None:
        """Run a statement for each of these parameters, all in one round trip."""
        self._flush_for(statement)
        if many:
            self._write([(statement.text, statement.parameters(one)) for one in many])

    def append_with_flush(self, rows: Callable[[], Iterable[Statement]]) -> None:
        """Ask for these statements at every flush, after all records."""
        self._appended.append(rows)

    def append_inserts_with_flush(self, rows: Callable[[], Iterable[Statement]]) -> None:
        """The same of plain INSERTs, which `joined` may send as one."""
        self._appended_inserts.append(rows)

    def execute(
        self, statement: Executable, parameters: Any = None
    ) -> CursorResult[*tuple[Any, ...]]:
        """Any other statement, through SQLAlchemy, with all that has changed written before."""
        return self.connection().execute(statement, parameters)

    def connection(self) -> Connection:
        """SQLAlchemy's connection in this transaction, with all that has changed written."""
        self.flush()
        if self._wrapped is None:
            self._open()
            self._wrapped = Connection(self._engine, self._pooled)
        return self._wrapped

    # --- the end ---

    def commit(self, before: Callable[[], None] | None = None) -> None:
        """Write what has changed and make it durable, in one round trip.

        before: called when it is known what is to be written, and nothing of it has been sent.
        Raises when a statement has failed that the caller went on after: the server would undo
        all, and say so only in passing.
        """
        waiting = self._collect()
        self._tell(waiting)
        if before is not None:
            before()
        self._refuse_if_spoiled()
        if self._autocommit or (not waiting and (self._runner is None or self._runner.idle)):
            return
        if self._runner is None:
            # What begins a transaction may be sent twice, a COMMIT whose answer is lost may not.
            self._write(waiting, told=True)
            waiting = []
        self._write([*waiting, COMMIT], told=True)

    def close(self) -> None:
        """Give the connection back; what was not committed is undone."""
        if self._pooled is None or self._driver is None:
            return
        try:
            if not self._driver.closed:
                if self._runner is not None and not self._runner.idle:
                    self._driver.rollback()
                if self._driver.autocommit:
                    self._driver.autocommit = False
        except psycopg.Error as error:
            # It is gone, and with it the transaction. Why the caller ends is the better error.
            self._forget(error)
            return
        self._pooled.close()
        self._pooled = self._driver = self._runner = self._wrapped = None

    # --- inside ---

    def _hold(self, kind: RecordKind[R], row: Row, again: bool) -> R:
        name = (kind.record, kind.key_of_row(row))
        held = self._held.get(name)
        if held is not None and not again:
            known: R = held[0]
            return known
        values = kind.values(row)
        if held is None:
            record = kind.make(values)
        else:
            record = held[0]
            vars(record).update(zip(kind.names, values, strict=True))
        self._held[name] = (record, values)
        return record

    def _changed(self) -> list[tuple[_Key, tuple[Any, Snapshot]]]:
        found = [
            (name, held)
            for name, held in self._held.items()
            if KINDS[name[0]].snapshot(vars(held[0])) != held[1]
        ]
        if len(found) > 1:
            found.sort(key=lambda item: KINDS[item[0][0]].rank)
        return found

    def _flush_for(self, statement: Ready) -> None:
        """Write everything if the statement reads a table in which something has changed."""
        reads = statement.reads
        if reads is None or self._touches(reads):
            self.flush()

    def _touches(self, reads: frozenset[str]) -> bool:
        if any(KINDS[type(one)].table.name in reads for one in (*self._new, *self._deleted)):
            return True
        return any(
            KINDS[name[0]].table.name in reads and KINDS[name[0]].snapshot(vars(record)) != before
            for name, (record, before) in self._held.items()
        )

    def _collect(self) -> list[Statement]:
        """What is to be written: first what goes, then what changes, then what is new."""
        found: list[Statement] = []
        gone, self._deleted = self._deleted, []
        for record in gone:
            kind = KINDS[type(record)]
            key = kind.key_of(record)
            found.append((kind.delete.text, kind.key_parameters(key)))
            self._held.pop((kind.record, key), None)
        for name, (record, before) in self._changed():
            kind = KINDS[name[0]]
            after = kind.snapshot(vars(record))
            found.append(kind.update(name[1], before, after))
            self._held[name] = (record, after)
        new, self._new = self._new, []
        if new:
            found += self._inserts(new)
        for rows in self._appended:
            found += rows()
        found += joined(one for rows in self._appended_inserts for one in rows())
        return found

    def _inserts(self, new: Sequence[Any]) -> Iterator[Statement]:
        for kind in sorted({KINDS[type(one)] for one in new}, key=lambda one: one.rank):
            alike: dict[tuple[str, ...], list[Any]] = {}
            for record in new:
                if type(record) is kind.record:
                    alike.setdefault(kind.set_names(record), []).append(record)
            for names, records in alike.items():
                rows = max(1, PARAMETERS_MAX // len(names))
                for first in range(0, len(records), rows):
                    yield kind.insert(records[first : first + rows])
        for record in new:
            kind = KINDS[type(record)]
            self._held[kind.record, kind.key_of(record)] = (record, kind.snapshot(vars(record)))

    def _open(self) -> StatementRunner:
        if self._runner is None:
            self._pooled = self._engine.raw_connection()
            driver = self._pooled.driver_connection
            assert isinstance(driver, psycopg.Connection)
            # Nothing but a transaction's begin says READ ONLY (`make_engine`).
            if self._autocommit and not driver.read_only:
                driver.autocommit = True
            self._driver = driver
            self._runner = StatementRunner(driver)
        return self._runner

    def _write(self, statements: list[Statement], *, told: bool = False) -> None:
        """Run statements that what is held counts as written with: all of them, or no commit."""
        self._refuse_if_spoiled()
        self._spoiled = True
        self._send(statements, told=told)
        self._spoiled = False

    def _refuse_if_spoiled(self) -> None:
        if self._spoiled or (self._runner is not None and self._runner.aborted):
            error = psycopg.errors.InFailedSqlTransaction(
                "the transaction is aborted: one of its statements failed, and nothing is stored"
            )
            raise DBAPIError.instance("", None, error, psycopg.Error, dialect=DIALECT) from error

    def _send(self, statements: list[Statement], *, told: bool = False) -> list[list[Row]]:
        """Run statements together; the first of a transaction begin it."""
        first = self._runner is None
        runner = self._open()
        if not told:
            self._tell(statements)
        try:
            return runner.run(statements)
        except StatementFailed as failure:
            if not first or self._driver is None or not self._driver.closed:
                raise self._translated(failure) from failure.cause
            # The server has gone since the connection was last used, and nothing has been done on
            # it: the others that wait in the pool are as old.
            self._forget(failure.cause)
            self._engine.dispose()
        try:
            return self._open().run(statements)
        except StatementFailed as failure:
            raise self._translated(failure) from failure.cause

    def _tell(self, statements: Iterable[Statement]) -> None:
        """Whoever listens to the engine's statements hears of these too."""
        for listen in self._engine.dispatch.before_cursor_execute:
            for text, parameters in statements:
                listen(None, None, text, parameters, None, False)

    def _translated(self, failure: StatementFailed) -> BaseException:
        lost = self._driver is not None and bool(self._driver.closed)
        if lost:
            self._spoiled = True
            self._forget(failure.cause)
        text = ";\n".join(text for text, _ in failure.statements)
        return DBAPIError.instance(
            text, None, failure.cause, psycopg.Error,
            connection_invalidated=lost, dialect=DIALECT,
        )  # fmt: skip

    def _forget(self, error: psycopg.Error) -> None:
        if self._pooled is not None:
            self._pooled.invalidate(error)
            self._pooled.close()
        self._pooled = self._driver = self._runner = self._wrapped = None


class Repository:
    """What is stored of one noun, in the transaction of a session."""

    def __init__(self, session: RecordSession) -> None:
        self._session = session
