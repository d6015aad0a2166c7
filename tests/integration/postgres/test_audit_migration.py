"""The migration of the audit's indexes (0017): its rows, programs beside it, and interruptions."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import NullPool, create_engine, text
from sqlalchemy.exc import DBAPIError, IntegrityError, ProgrammingError

from app.storage.session import migrate
from app.storage.session.revision import found_schema
from tests.support.api.agent_api import wait_until
from tests.support.servers.table_rows import waiting_for_locks

_ROW = """
INSERT INTO audit_entries (id, at, request_id, action, subject_kind, subject_id, subject_name,
    outcome, number)
VALUES ('00000000-0000-0000-0000-00000000000{0}', '2026-03-01Z', '{0}', 'key.create', 'key', 'k',
    'k', 'done', {1})
"""
_A, _B, _C = (_ROW.format(one, "NULL") for one in "abc")
_REFUSED = (
    (_ROW.format("d", 7), "by a seal"),
    ("UPDATE audit_entries SET number = 1 WHERE number IS NULL", "_audit_entries_number"),
    ("UPDATE audit_entries SET number = 3, outcome = 'begun' WHERE number IS NULL", "append-only"),
    ("UPDATE audit_entries SET number = NULL", "append-only"),
    ("DELETE FROM audit_entries", "append-only"),
)


def _change(url: str, *statements: str) -> None:
    with create_engine(url, poolclass=NullPool).begin() as connection:
        for statement in statements:
            connection.execute(text(statement))


def _indexes(url: str) -> list[tuple[str, bool]]:
    """The definition of each index of the audit's rows, and whether it is complete."""
    found = (
        "SELECT pg_get_indexdef(indexrelid), indisvalid FROM pg_index "
        "WHERE indrelid = 'audit_entries'::regclass ORDER BY 1"
    )
    with create_engine(url, poolclass=NullPool).connect() as connection:
        return [(row[0], row[1]) for row in connection.execute(text(found))]


def test_rows_stay_as_they_are_and_protected(empty_database_url: str):
    migrate.upgrade(empty_database_url, "0016")
    _change(empty_database_url, _A, _B)
    _change(empty_database_url, "UPDATE audit_entries SET number = 1 WHERE request_id = 'a'")
    for migrated in (migrate.upgrade, lambda url: migrate.downgrade(url, "0016")):
        migrated(empty_database_url)
        with create_engine(empty_database_url, poolclass=NullPool).connect() as connection:
            kept = connection.execute(text("SELECT request_id, number FROM audit_entries"))
            assert sorted(kept.all()) == [("a", 1), ("b", None)]
            connection.rollback()
            for refused, why in _REFUSED:
                with pytest.raises(DBAPIError, match=why):
                    connection.execute(text(refused))
                connection.rollback()
            connection.execute(text("UPDATE audit_entries SET number = 2 WHERE number IS NULL"))
            connection.rollback()


def test_programs_write_rows_while_indexes_are_built(empty_database_url: str):
    migrate.upgrade(empty_database_url, "0016")
    engine = create_engine(empty_database_url, poolclass=NullPool)
    with ThreadPoolExecutor(1) as threads, engine.connect() as program:
        program.execute(text(_A))
        upgrading = threads.submit(migrate.upgrade, empty_database_url)
        wait_until(lambda: waiting_for_locks(engine) == 1)
        _change(empty_database_url, "SET LOCAL lock_timeout = '1s'", _B)
        program.commit()
        upgrading.result(timeout=60)
    assert migrate.current(empty_database_url) == migrate.head()


def test_an_index_whose_building_was_interrupted_is_built_anew(
    database_url: str, empty_database_url: str
):
    migrate.upgrade(empty_database_url, "0016")
    _change(empty_database_url, _A, _B)
    other = create_engine(empty_database_url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    unfinished = "CREATE UNIQUE INDEX CONCURRENTLY ix_audit_entries_sealed_at ON audit_entries (at)"
    with other.connect() as connection, pytest.raises(IntegrityError):
        connection.execute(text(unfinished))
    migrate.upgrade(empty_database_url)
    indexes = _indexes(empty_database_url)
    assert indexes == _indexes(database_url)
    assert all(is_complete for _, is_complete in indexes)


def test_one_that_fails_after_it_committed_leaves_a_database_of_this_version(
    empty_database_url: str,
):
    migrate.upgrade(empty_database_url, "0015")
    _change(empty_database_url, "DROP TRIGGER audit_entries_numbered_once ON audit_entries")
    with pytest.raises(ProgrammingError, match="does not exist"):
        migrate.upgrade(empty_database_url)
    mark = found_schema(empty_database_url).mark
    assert mark is not None
    assert (mark.revision, mark.is_ours) == ("0016", True)
    again = "BEFORE INSERT ON audit_entries FOR EACH ROW EXECUTE FUNCTION refuse_audit_update()"
    _change(empty_database_url, f"CREATE TRIGGER audit_entries_numbered_once {again}", _C)
    migrate.upgrade(empty_database_url)
    assert migrate.current(empty_database_url) == migrate.head()
