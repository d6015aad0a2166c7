"""A database of its own for every simulated world, cloned from the run's template."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.support.servers.postgres import PostgresForTests

NewDatabase = Callable[[], str]


@pytest.fixture
def new_database(postgres: PostgresForTests) -> Iterator[NewDatabase]:
    """Makes migrated, empty databases; they are dropped when the test ends."""
    made: list[str] = []

    def make() -> str:
        made.append(postgres.clone())
        return made[-1]

    yield make
    for url in made:
        postgres.drop(url)


@pytest.fixture
def database_url(new_database: NewDatabase) -> str:
    """As everywhere, but nobody is connected to it: a world copies and drops its databases."""
    return new_database()
