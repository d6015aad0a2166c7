"""A database that one test after the other borrows: emptied, and kept while its schema is ours."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import text

from tests.support.api.people_api import make_project
from tests.support.servers.postgres import LentDatabase, PostgresForTests
from tests.support.servers.table_rows import execute


@pytest.fixture
def lent(postgres: PostgresForTests) -> Iterator[LentDatabase]:
    made = LentDatabase(postgres.clone())
    yield made
    made.engine.dispose()
    postgres.drop(made.url)


def test_rows_go_and_the_database_stays(lent: LentDatabase):
    make_project(lent.engine, "left behind")
    assert lent.is_clean()
    with lent.engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM projects")).scalar_one() == 0
    assert lent.is_clean()


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE projects ADD COLUMN more text",
        "DROP TABLE sessions",
        "CREATE INDEX one_more ON projects (created_at)",
        "CREATE FUNCTION one_more() RETURNS integer LANGUAGE sql RETURN 1",
        "ALTER TABLE jobs DISABLE TRIGGER ALL",
    ],
)
def test_a_changed_definition_ends_it(lent: LentDatabase, change: str):
    execute(lent.engine, change)
    assert not lent.is_clean()
