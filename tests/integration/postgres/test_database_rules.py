"""Rules that the database itself keeps: the ledger only grows; idle jobs have no live attempt."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Connection, Engine, Table, insert, select, text, update
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError

from app.domain.lifecycle.attempt import LIVE_ATTEMPT_STATES, TERMINAL_ATTEMPT_STATES, AttemptState
from app.domain.lifecycle.job import ATTEMPT_JOB_STATES, TERMINAL_JOB_STATES, JobState
from app.storage.schema.money_tables import ledger_entries
from app.storage.schema.tables import attempts, budgets, instances, jobs, projects

AT = datetime(2026, 1, 1, tzinfo=UTC)
IDLE = sorted(set(JobState) - ATTEMPT_JOB_STATES)
_PLAIN: dict[str, Callable[[], object]] = {
    "UUID": uuid4, "INTEGER": lambda: 1, "BIGINT": int, "JSONB": dict, "BOOLEAN": bool,
}  # fmt: skip


def _insert(connection: Connection, table: Table, **values: object) -> UUID:
    """Store a row: `values`, plus something plain in every other column that must have a value."""
    for column in table.columns:
        if column.name not in values and not column.nullable:
            kind = column.type.compile(connection.dialect)
            values[column.name] = AT if column.name.endswith("_at") else None
            values[column.name] = values[column.name] or _PLAIN.get(kind, lambda: str(uuid4()))()
    connection.execute(insert(table).values(values))
    row_id = values["id"]
    assert isinstance(row_id, UUID)
    return row_id


def _job(connection: Connection, state: JobState) -> UUID:
    project_id = _insert(connection, projects)
    budget_id = _insert(connection, budgets, project_id=project_id)
    return _insert(
        connection,
        jobs,
        project_id=project_id,
        budget_id=budget_id,
        state=state,
        market_mode="spot",
        ended_at=AT if state in TERMINAL_JOB_STATES else None,
    )


def _attempt(connection: Connection, job_id: UUID, state: AttemptState) -> UUID:
    return _insert(connection, attempts, job_id=job_id, state=state, node_count=1)


def _move_job(connection: Connection, job_id: UUID, state: JobState) -> None:
    ended_at = AT if state in TERMINAL_JOB_STATES else None
    connection.execute(
        update(jobs).where(jobs.c.id == job_id).values(state=state, ended_at=ended_at)
    )


def _end_attempts(connection: Connection, job_id: UUID) -> None:
    connection.execute(
        update(attempts).where(attempts.c.job_id == job_id).values(state=AttemptState.LOST)
    )


@pytest.fixture
def ledger(engine: Engine) -> Iterator[Connection]:
    """A connection to a database with one ledger entry."""
    with engine.connect() as connection:
        instance_id = _insert(
            connection, instances, market="spot", state="terminated", origin="launch"
        )
        _insert(connection, ledger_entries, instance_id=instance_id, kind="accrual")
        connection.commit()
        yield connection


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE ledger_entries SET amount_microusd = 1",
        "UPDATE ledger_entries SET amount_microusd = 1 WHERE false",
        "DELETE FROM ledger_entries",
        "TRUNCATE ledger_entries",
        "TRUNCATE instances CASCADE",
        "SET session_replication_role = replica; DELETE FROM ledger_entries",
    ],
)
def test_the_ledger_refuses_every_change(ledger: Connection, statement: str):
    with pytest.raises(DBAPIError, match="append-only"):
        ledger.execute(text(statement))
    ledger.rollback()
    assert len(ledger.execute(select(ledger_entries)).all()) == 1


def test_the_ledger_s_owner_has_no_right_to_change_it(ledger: Connection):
    for right in ("UPDATE", "DELETE", "TRUNCATE"):
        granted = ledger.execute(
            text(
                "SELECT count(*) FROM information_schema.role_table_grants "
                "WHERE table_name = 'ledger_entries' AND privilege_type = :right"
            ),
            {"right": right},
        )
        assert granted.scalar_one() == 0, right


@pytest.mark.parametrize("state", IDLE)
def test_an_idle_job_gets_no_live_attempt(engine: Engine, state: JobState):
    with (
        pytest.raises(IntegrityError, match=f"is {state} and must not have a live attempt"),
        engine.begin() as connection,
    ):
        _attempt(connection, _job(connection, state), AttemptState.PROVISIONING)


@pytest.mark.parametrize("state", sorted(ATTEMPT_JOB_STATES))
@pytest.mark.parametrize("attempt_state", sorted(LIVE_ATTEMPT_STATES))
def test_a_job_under_way_may_have_one(engine: Engine, state: JobState, attempt_state: AttemptState):
    with engine.begin() as connection:
        _attempt(connection, _job(connection, state), attempt_state)


@pytest.mark.parametrize("state", IDLE)
@pytest.mark.parametrize("attempt_state", sorted(LIVE_ATTEMPT_STATES))
def test_a_job_does_not_become_idle_with_a_live_attempt(
    engine: Engine, state: JobState, attempt_state: AttemptState
):
    with engine.begin() as connection:
        job_id = _job(connection, JobState.RUNNING)
        _attempt(connection, job_id, attempt_state)
    with (
        pytest.raises(IntegrityError, match="must not have a live attempt"),
        engine.begin() as connection,
    ):
        _move_job(connection, job_id, state)


@pytest.mark.parametrize("attempt_state", sorted(TERMINAL_ATTEMPT_STATES))
def test_ended_attempts_do_no_harm_but_must_not_revive(engine: Engine, attempt_state: AttemptState):
    with engine.begin() as connection:
        job_id = _job(connection, JobState.QUEUED)
        _attempt(connection, job_id, attempt_state)
    with (
        pytest.raises(IntegrityError, match="must not have a live attempt"),
        engine.begin() as connection,
    ):
        connection.execute(update(attempts).values(state=AttemptState.RUNNING))


def test_only_the_commit_counts(engine: Engine):
    with engine.begin() as connection:
        job_id = _job(connection, JobState.QUEUED)
        _attempt(connection, job_id, AttemptState.PROVISIONING)
        _move_job(connection, job_id, JobState.STARTING)
    with engine.begin() as connection:
        _move_job(connection, job_id, JobState.RECOVERING)
        _end_attempts(connection, job_id)


def test_two_transactions_at_once_cannot_break_it_together(engine: Engine):
    with engine.begin() as connection:
        job_id = _job(connection, JobState.RUNNING)
    with engine.connect() as ender, engine.connect() as beginner:
        # Each alone is right, so whoever looks first must make the other wait.
        _move_job(ender, job_id, JobState.RECOVERING)
        _attempt(beginner, job_id, AttemptState.PROVISIONING)
        with pytest.raises(OperationalError, match="lock timeout"):
            beginner.execute(text("SET CONSTRAINTS ALL IMMEDIATE"))
