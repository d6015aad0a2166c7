"""The first rows of a database: once, whoever comes, and never without the key being kept."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import Engine, make_url, select

from app.adapters.system_entropy import SystemEntropy
from app.bootstrap import NoWakeups
from app.cli.server.migrate_command import prepare_database
from app.domain.deployment.credentials import digest
from app.orchestration.access.first_use import prepare_first_use
from app.storage.schema import tables
from app.storage.unit_of_work import PostgresUnitOfWorkFactory
from tests.support.servers.postgres import PostgresForTests

ENTROPY = SystemEntropy()


def begin(engine: Engine) -> PostgresUnitOfWorkFactory:
    return PostgresUnitOfWorkFactory(engine, NoWakeups())


def test_a_new_database_gets_a_deployment_a_project_and_a_key(engine: Engine):
    keys: list[str] = []
    token = prepare_first_use(begin(engine), ENTROPY, keys.append)
    assert token is not None
    with engine.connect() as connection:
        [deployment] = connection.execute(select(tables.deployment)).all()
        [project] = connection.execute(select(tables.projects)).all()
        [budget] = connection.execute(select(tables.budgets)).all()
        [key] = connection.execute(select(tables.api_keys)).all()
        [invitation] = connection.execute(select(tables.invitations)).all()
    assert len(deployment.secret) >= 43
    assert (budget.project_id, budget.job_id, budget.cap_microusd) == (project.id, None, None)
    assert (project.name, key.project_id, key.revoked_at) == ("default", project.id, None)
    assert key.key_hash == digest(keys[0])
    assert keys[0].startswith("lt_")
    assert (invitation.token_hash, invitation.role) == (digest(token), "admin")


def test_it_happens_once_even_when_two_come_together(engine: Engine):
    keys: list[str] = []
    made: list[str | None] = []

    def prepare() -> None:
        made.append(prepare_first_use(begin(engine), ENTROPY, keys.append))

    threads = [threading.Thread(target=prepare) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made.count(None) == 3
    assert len(keys) == 1


def test_a_key_that_could_not_be_kept_is_made_again(engine: Engine):
    def full_disk(key: str) -> None:
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        prepare_first_use(begin(engine), ENTROPY, full_disk)
    with engine.connect() as connection:
        assert connection.execute(select(tables.deployment)).all() == []
        assert connection.execute(select(tables.api_keys)).all() == []
    assert prepare_first_use(begin(engine), ENTROPY, lambda key: None)


def _sessions(postgres: PostgresForTests, url: str) -> int:
    """How many a database has ever had, counted once all of them have ended.

    A session that ends hands in its counts (`pgstat_shutdown_hook`) before it leaves
    `pg_stat_activity` (`pgstat_beshutdown_hook`): src/backend/utils/activity of PostgreSQL.
    """
    name = make_url(url).database
    server = postgres.url_of("postgres").replace("postgresql+psycopg://", "postgresql://", 1)
    with psycopg.connect(server, autocommit=True) as connection:
        for _ in range(600):
            open_ones = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s"
            found = connection.execute(open_ones, (name,)).fetchone()
            if found == (0,):
                break
            time.sleep(0.1)
        else:
            raise AssertionError(f"sessions of {name} stay open")
        count = "SELECT sessions FROM pg_stat_database WHERE datname = %s"
        row = connection.execute(count, (name,)).fetchone()
    assert row is not None
    return int(row[0])


def test_a_database_in_order_is_looked_at_over_one_connection(
    postgres: PostgresForTests, empty_database_url: str, tmp_path: Path
):
    """It is what every start of `lowtide up` finds."""
    made = prepare_database(empty_database_url, tmp_path)
    assert made.before is None
    before = _sessions(postgres, empty_database_url)
    again = prepare_database(empty_database_url, tmp_path)
    assert (again.before, again.after, again.key_path) == (made.after, made.after, None)
    assert made.first_admin_path is not None
    assert again.first_admin_path is None
    assert _sessions(postgres, empty_database_url) == before + 1
