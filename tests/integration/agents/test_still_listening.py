"""The exchange of an api process that has nothing to store: one statement, but after a gap."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from sqlalchemy import Engine

from app.storage.instances.contact_statements import ContactStatements
from app.storage.schema import tables
from app.storage.session.record_session import RecordSession
from tests.support.servers.table_rows import add_row, change_rows, row_of

AT = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
GAP = 15.0
UNKNOWN = UUID(int=7)
NO_JOBS: Mapping[UUID, int] = {}


def later(seconds: float) -> datetime:
    return AT + timedelta(seconds=seconds)


@contextmanager
def at(engine: Engine, seconds: float) -> Iterator[ContactStatements]:
    """What an api process says and asks at this instant."""
    session = RecordSession(engine)
    yield ContactStatements(session, lambda: later(seconds))
    session.commit()
    session.close()


def hearing(engine: Engine) -> tuple[object, ...]:
    """(listening at, hearing since)."""
    found = row_of(engine, tables.deployment)
    return found.listening_at, found.hearing_since_at


@pytest.fixture(autouse=True)
def _deployment(engine: Engine) -> None:
    add_row(engine, tables.deployment, id=1, deployment_id=UUID(int=1), secret="-")


def test_the_first_word_is_said_in_a_transaction_and_noted_there(engine: Engine):
    with at(engine, 0) as contacts:
        assert contacts.still_listening(NO_JOBS, GAP) is None
        assert contacts.record_listening(later(0), GAP)
    assert hearing(engine) == (later(0), later(0))
    # Another process at the same instant begins hearing anew as well.
    with at(engine, 0) as contacts:
        assert contacts.still_listening(NO_JOBS, GAP) is None


def test_while_agents_are_heard_only_the_newest_instant_moves(engine: Engine):
    with at(engine, 0) as contacts:
        contacts.record_listening(later(0), GAP)
    with at(engine, GAP) as contacts:
        assert contacts.still_listening(NO_JOBS, GAP) == []
    assert hearing(engine) == (later(GAP), later(0))
    with at(engine, 5) as contacts:  # a clock that went back
        assert contacts.still_listening(NO_JOBS, GAP) == []
    assert hearing(engine) == (later(GAP), later(0))


def test_after_a_gap_nothing_is_noted(engine: Engine):
    with at(engine, 0) as contacts:
        contacts.record_listening(later(0), GAP)
    with at(engine, GAP + 0.001) as contacts:
        assert contacts.still_listening({UNKNOWN: 1}, GAP) is None
    assert hearing(engine) == (later(0), later(0))


def test_changed_jobs_are_told_with_it(engine: Engine):
    with at(engine, 0) as contacts:
        contacts.record_listening(later(0), GAP)
    asked = {UNKNOWN: 1, UUID(int=3): 2}
    with at(engine, 1) as contacts:
        assert contacts.still_listening(asked, GAP) == [UUID(int=3), UNKNOWN]
    with at(engine, 2) as contacts:
        assert contacts.still_listening(asked, None) == [UUID(int=3), UNKNOWN]
    assert hearing(engine) == (later(1), later(0))


def test_without_a_clock_of_its_own_it_asks_that_of_the_database(engine: Engine):
    session = RecordSession(engine)
    now = datetime.now(UTC)
    ContactStatements(session).record_listening(now, GAP)
    session.commit()
    session.close()
    session = RecordSession(engine)
    assert ContactStatements(session).still_listening(NO_JOBS, GAP) == []
    session.close()
    assert now < hearing(engine)[0] < now + timedelta(seconds=60)  # type: ignore[operator]
    change_rows(engine, tables.deployment, listening_at=now - timedelta(seconds=60))
    session = RecordSession(engine)
    assert ContactStatements(session).still_listening(NO_JOBS, GAP) is None
    session.close()
