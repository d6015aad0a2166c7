"""One transaction's records on a real database: one object per row, written once, in one go."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Engine, bindparam, event, make_url, select, text
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError

from app.domain.lifecycle.entities import Budget
from app.storage.schema import tables
from app.storage.session.engine import make_engine
from app.storage.session.ready_statement import Ready
from app.storage.session.record_session import RecordSession
from tests.support.servers.table_rows import add_row

AT = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
ALL_BUDGETS = Ready(select(*tables.budgets.c).order_by(tables.budgets.c.id))
PID = Ready(text("SELECT pg_backend_pid()"), frozenset())


@contextmanager
def opened(engine: Engine) -> Iterator[RecordSession]:
    """A transaction that ends as a unit of work does."""
    session = RecordSession(engine)
    try:
        yield session
        session.commit()
    finally:
        session.close()


@pytest.fixture
def project_id(engine: Engine) -> UUID:
    made = uuid4()
    add_row(engine, tables.projects, id=made, name="alpha", created_at=AT)
    return made


def budget(project_id: UUID, **fields: int) -> Budget:
    return Budget(uuid4(), project_id, uuid4(), None, **fields)


@contextmanager
def writes(engine: Engine) -> Iterator[list[str]]:
    found: list[str] = []

    def note(_c: object, _cursor: object, statement: str, *_more: object) -> None:
        if not statement.startswith("SELECT"):
            found.append(statement)

    event.listen(engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        event.remove(engine, "before_cursor_execute", note)


def test_a_row_is_one_object_and_only_what_changed_is_written(
    engine: Engine, project_id: UUID
) -> None:
    made = budget(project_id, spent_microusd=7)
    with opened(engine) as session:
        session.add(made)
    with writes(engine) as seen, opened(engine) as session:
        found = session.get(Budget, made.id)
        assert found is not None
        assert session.all(Budget, ALL_BUDGETS, {}) == [found]
        found.reserved_microusd = 1
        found.reserved_microusd = 5
    assert len(seen) == 1
    assert seen[0].startswith("UPDATE budgets SET reserved_microusd=")
    with opened(engine) as session:
        again = session.get(Budget, made.id)
        assert again is not None
        assert again is not found
        assert (again.spent_microusd, again.reserved_microusd) == (7, 5)


def test_a_statement_sees_what_has_changed_before_it(engine: Engine, project_id: UUID) -> None:
    with opened(engine) as session:
        session.add(budget(project_id, reserved_microusd=3))
        (found,) = session.all(Budget, ALL_BUDGETS, {})
        found.reserved_microusd = 9
        total = Ready(text("SELECT sum(reserved_microusd) FROM budgets"))
        assert session.scalar(total) == 9
        assert session.execute(text("SELECT sum(reserved_microusd) FROM budgets")).scalar() == 9


def test_what_an_exception_leaves_is_undone_and_the_connection_is_clean(
    engine: Engine, project_id: UUID
) -> None:
    def fail() -> None:
        with opened(engine) as session:
            session.add(budget(project_id))
            session.flush()
            raise ZeroDivisionError

    for _ in range(5):  # beyond the use at which statements are prepared
        with pytest.raises(ZeroDivisionError):
            fail()
    with opened(engine) as session:
        assert session.all(Budget, ALL_BUDGETS, {}) == []


def test_a_rule_of_the_store_speaks_at_the_flush(engine: Engine, project_id: UUID) -> None:
    for _ in range(5):
        session = RecordSession(engine)
        session.add(budget(project_id))
        session.add(budget(project_id, reserved_microusd=-1))
        with pytest.raises(IntegrityError, match="reserved_positive"):
            session.flush()
        with pytest.raises(DBAPIError, match="transaction is aborted"):
            session.all(Budget, ALL_BUDGETS, {})
        session.close()
    with opened(engine) as session:
        assert session.all(Budget, ALL_BUDGETS, {}) == []


def test_values_of_every_kind_come_back_as_they_went(engine: Engine) -> None:
    given = {
        "number": 2**60, "small": -1, "yes": True, "no": False, "fraction": 0.1, "at": AT,
        "word": "o'x \\ \" % ü", "empty": "", "nothing": None, "id": UUID(int=5),
        "ids": [UUID(int=1), None], "words": ['a"b', "c\\d", "e,f", "{}", "NULL", "ü"],
        "numbers": [1, None, 3], "span": timedelta(days=3, microseconds=7),
    }  # fmt: skip
    kinds = {
        "number": "bigint", "small": "int", "yes": "boolean", "no": "boolean",
        "fraction": "float8", "at": "timestamptz", "word": "text", "empty": "text",
        "nothing": "timestamptz", "id": "uuid", "ids": "uuid[]", "words": "text[]",
        "numbers": "int[]", "span": "interval",
    }  # fmt: skip
    columns = ", ".join(f"CAST(:{name} AS {kind})" for name, kind in kinds.items())
    statement = Ready(text(f"SELECT {columns}"), frozenset())
    with opened(engine) as session:
        for _ in range(5):
            assert session.row(statement, given) == tuple(given[name] for name in kinds)


def test_a_parameter_without_a_form_is_refused_and_nothing_is_left_open(engine: Engine) -> None:
    statement = Ready(text("SELECT CAST(:what AS text)"), frozenset())
    with opened(engine) as session:
        with pytest.raises(DBAPIError, match="object"):
            session.row(statement, {"what": object()})
        assert session.row(statement, {"what": "x"}) == ("x",)


# --- connections that have died -------------------------------------------------------------------


@pytest.fixture
def own(database_url: str) -> Iterator[Engine]:
    engine = make_engine(database_url, pool_size=2)
    yield engine
    engine.dispose()


def _end_backend(engine: Engine, pid: int) -> None:
    with engine.connect() as connection:
        connection.execute(select(text("pg_terminate_backend(:pid)")), {"pid": pid})


def test_a_transaction_begins_anew_on_a_connection_that_died_in_the_pool(
    own: Engine, engine: Engine
) -> None:
    with opened(own) as session:
        pid = session.scalar(PID)
    _end_backend(engine, pid)
    with opened(own) as session:
        assert session.scalar(PID) != pid


def test_a_connection_that_died_while_it_lay_idle_is_not_handed_out(
    own: Engine, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with own.connect() as connection:
        pid = connection.scalar(text("SELECT pg_backend_pid()"))
    _end_backend(engine, pid)
    monkeypatch.setattr("app.storage.session.engine.PING_AFTER_IDLE_SECONDS", 0.0)
    with own.connect() as connection:
        assert connection.scalar(text("SELECT pg_backend_pid()")) != pid


def test_a_transaction_whose_connection_dies_is_not_carried_on(
    own: Engine, engine: Engine, project_id: UUID
) -> None:
    session = RecordSession(own)
    session.add(budget(project_id))
    session.flush()
    _end_backend(engine, session.scalar(PID))
    with pytest.raises(OperationalError):
        session.scalar(PID)
    session.close()
    with opened(own) as after:
        assert after.all(Budget, ALL_BUDGETS, {}) == []


def test_nothing_is_committed_of_a_transaction_that_goes_on_after_its_connection_died(
    own: Engine, engine: Engine, project_id: UUID
) -> None:
    session = RecordSession(own)
    session.add(budget(project_id))
    session.flush()
    _end_backend(engine, session.scalar(PID))
    with pytest.raises(OperationalError):
        session.scalar(PID)
    session.add(budget(project_id, spent_microusd=2))
    with pytest.raises(DBAPIError, match="transaction is aborted"):
        session.commit()
    session.close()
    with opened(own) as after:
        assert after.all(Budget, ALL_BUDGETS, {}) == []


def test_a_commit_after_a_failed_statement_is_an_error_however_it_was_run(
    own: Engine, project_id: UUID
) -> None:
    failing = text("SELECT 1 / 0")
    runs: tuple[Callable[[RecordSession], object], ...] = (
        lambda session: session.rows(Ready(failing, frozenset())),
        lambda session: session.execute(failing),
    )
    for run in runs:
        session = RecordSession(own)
        session.add(budget(project_id))
        session.flush()
        with pytest.raises(DBAPIError, match="division by zero"):
            run(session)
        with pytest.raises(DBAPIError, match="transaction is aborted"):
            session.commit()
        session.close()
    with opened(own) as after:
        assert after.all(Budget, ALL_BUDGETS, {}) == []


def test_changes_whose_flush_failed_here_are_not_lost_in_silence(
    own: Engine, project_id: UUID
) -> None:
    made = budget(project_id)
    with opened(own) as session:
        session.add(made)
    session = RecordSession(own)
    found = session.get(Budget, made.id)
    assert found is not None
    found.spent_microusd = object()  # type: ignore[assignment]
    with pytest.raises(DBAPIError, match="object"):
        session.flush()
    with pytest.raises(DBAPIError, match="transaction is aborted"):
        session.commit()
    session.close()


def test_the_error_that_ends_a_transaction_is_told_though_its_connection_died(
    own: Engine, engine: Engine, project_id: UUID
) -> None:
    def fail() -> None:
        with opened(own) as session:
            session.add(budget(project_id))
            session.flush()
            _end_backend(engine, session.scalar(PID))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert own.pool.checkedout() == 0  # type: ignore[attr-defined]
    with opened(own) as after:
        assert after.all(Budget, ALL_BUDGETS, {}) == []


def test_a_commit_whose_answer_is_lost_is_an_error_and_not_sent_again(
    database_url: str, engine: Engine, project_id: UUID
) -> None:
    with cut_at_commit(database_url) as url:
        far = make_engine(url, pool_size=2)
        try:
            session = RecordSession(far)
            session.add(budget(project_id, spent_microusd=4))
            with pytest.raises(OperationalError):
                session.commit()
            session.close()
        finally:
            far.dispose()
    with opened(engine) as after:
        assert [one.spent_microusd for one in after.all(Budget, ALL_BUDGETS, {})] == [4]


@contextmanager
def cut_at_commit(url: str) -> Iterator[str]:
    """A way to the server that ends when it has answered the first COMMIT, and does not say so."""
    server = make_url(url)
    listener = socket.create_server(("127.0.0.1", 0))
    cut = threading.Event()

    def carry(source: socket.socket, target: socket.socket, *, outwards: bool) -> None:
        with suppress(OSError):
            while content := source.recv(65_536):
                if outwards and b"COMMIT" in content and not cut.is_set():
                    cut.set()
                elif not outwards and cut.is_set() and b"COMMIT\0" in content:
                    break
                target.sendall(content)
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def serve() -> None:
        with suppress(OSError):
            while True:
                near, _ = listener.accept()
                far = socket.create_connection((server.host, server.port))
                for ends, outwards in (((near, far), True), ((far, near), False)):
                    threading.Thread(
                        target=carry, args=ends, kwargs={"outwards": outwards}, daemon=True
                    ).start()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield server.set(host="127.0.0.1", port=listener.getsockname()[1]).render_as_string(False)
    finally:
        listener.close()


SPEND = Ready(
    text("UPDATE budgets SET spent_microusd = spent_microusd + :more RETURNING spent_microusd")
)


def test_a_statement_alone_is_a_transaction_by_itself(engine: Engine, project_id: UUID) -> None:
    with opened(engine) as session:
        session.add(budget(project_id))
    session = RecordSession(engine)
    assert session.rows_alone(SPEND, {"more": 5}) == [(5,)]
    assert session.rows(SPEND, {"more": 2}) == [(7,)]  # in a transaction, which is not committed
    with pytest.raises(RuntimeError, match="has begun"):
        session.rows_alone(SPEND, {"more": 1})
    session.close()
    with opened(engine) as after:
        assert [one.spent_microusd for one in after.all(Budget, ALL_BUDGETS, {})] == [5]


def test_a_statement_alone_writes_nothing_while_only_reads_are_allowed(
    engine: Engine, project_id: UUID, database_url: str
) -> None:
    with opened(engine) as session:
        session.add(budget(project_id))
    reading = make_engine(database_url, only_reads=lambda: True)
    session = RecordSession(reading)
    assert session.rows_alone(ALL_BUDGETS, {})[0][0]
    session.close()
    session = RecordSession(reading)
    with pytest.raises(DBAPIError, match="read-only transaction"):
        session.rows_alone(SPEND, {"more": 5})
    session.close()
    reading.dispose()
    with opened(engine) as after:
        assert [one.spent_microusd for one in after.all(Budget, ALL_BUDGETS, {})] == [0]


def test_a_statement_of_unknown_length_is_refused_when_it_is_built() -> None:
    with pytest.raises(ValueError, match="no fixed text"):
        Ready(
            select(tables.jobs.c.id).where(
                tables.jobs.c.name.in_(bindparam("names", expanding=True))
            )
        )
