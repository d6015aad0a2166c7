"""The migrations: up, down and up again, no drift from the tables in code, limits and turns."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, Engine, NullPool, create_engine, text
from sqlalchemy.exc import OperationalError

from app.storage.schema import money_tables as _money_tables  # fills metadata  # noqa: F401
from app.storage.schema.tables import metadata
from app.storage.session import migrate
from app.storage.session.machine_names import machine_names

ROOT = Path(__file__).parents[3]
_UPGRADE = [
    sys.executable,
    "-c",
    "import sys; from app.storage.session import migrate; migrate.upgrade(sys.argv[1])",
]
LOCK_SECONDS = 4.0
"""`LOCK_TIMEOUT` of migrations/env.py, which runs inside Alembic alone."""
# In our schema, and not brought by an extension.
_OURS = (
    "n.nspname = 'public' "
    "AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = {oid} AND d.deptype = 'e')"
)
# What describes a schema to its last detail, in the database's own words.
_SCHEMA = {
    "columns": """
        SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull
        FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
            JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = 'public' AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped
    """,
    "constraints": """
        SELECT r.conrelid::regclass::text, r.conname, pg_get_constraintdef(r.oid)
        FROM pg_constraint r JOIN pg_namespace n ON n.oid = r.connamespace
        WHERE n.nspname = 'public' AND r.contype <> 't'
    """,
    "indexes": "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'",
    "options": """
        SELECT c.relname, c.reloptions::text FROM pg_class c
            JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = 'public' AND c.relkind = 'r'
    """,
}
_BANNED_IN_THE_DATABASE = (
    r"\m(now|gen_random_uuid|uuidv4|uuidv7|uuid_generate_v\d|clock_timestamp|random|nextval"
    r"|statement_timestamp|transaction_timestamp|timeofday)\s*\("
    r"|\m(current_timestamp|current_date|current_time|localtime|localtimestamp)\M"
)


@pytest.fixture
def connection(engine: Engine) -> Iterator[Connection]:
    """A connection to a migrated database."""
    with engine.connect() as opened:
        yield opened


def _schema(url: str) -> dict[str, list[tuple[object, ...]]]:
    with create_engine(url, poolclass=NullPool).connect() as connection:
        found = {
            name: sorted(tuple(row) for row in connection.execute(text(query)))
            for name, query in _SCHEMA.items()
        }
    return {
        name: [row for row in rows if row[0] != "alembic_version"] for name, rows in found.items()
    }


def test_up_down_up(empty_database_url: str):
    assert migrate.current(empty_database_url) is None
    migrate.upgrade(empty_database_url)
    once = _schema(empty_database_url)
    assert migrate.current(empty_database_url) == migrate.head()
    assert any(row[0] == "jobs" for row in once["columns"])

    migrate.downgrade(empty_database_url, "base")
    assert migrate.current(empty_database_url) is None
    assert all(rows == [] for rows in _schema(empty_database_url).values())
    with create_engine(empty_database_url, poolclass=NullPool).connect() as connection:
        left = connection.execute(
            text(
                "SELECT proname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace "
                "WHERE n.nspname = 'public'"
            )
        )
        assert left.all() == []

    migrate.upgrade(empty_database_url)
    assert _schema(empty_database_url) == once


def test_each_revision_goes_down_and_up(empty_database_url: str):
    migrate.upgrade(empty_database_url)
    before = _schema(empty_database_url)
    while migrate.current(empty_database_url) is not None:
        at = migrate.current(empty_database_url)
        migrate.downgrade(empty_database_url, "-1")
        migrate.upgrade(empty_database_url, "+1")
        assert migrate.current(empty_database_url) == at
        migrate.downgrade(empty_database_url, "-1")
    migrate.upgrade(empty_database_url)
    assert _schema(empty_database_url) == before


def test_the_code_and_the_migrations_describe_the_same_tables(connection: Connection):
    context = MigrationContext.configure(connection, opts={"compare_type": True})
    assert compare_metadata(context, metadata) == [], "a change of the tables needs a migration"


def test_not_even_a_constraint_or_an_option_differs(database_url: str, empty_database_url: str):
    with create_engine(empty_database_url, poolclass=NullPool).begin() as connection:
        connection.execute(text("CREATE EXTENSION btree_gist"))
        metadata.create_all(connection)
    assert _schema(database_url) == _schema(empty_database_url), (
        "a change of the tables needs a migration"
    )


def test_the_database_makes_no_time_id_or_number_of_its_own(connection: Connection):
    def names(query: str) -> list[str]:
        return list(connection.execute(text(query)).scalars())

    assert names("SELECT adrelid::regclass::text FROM pg_attrdef") == [], (
        "columns with a default: the program gives every value"
    )
    assert names("SELECT oid::regclass::text FROM pg_class WHERE relkind = 'S'") == []
    ours = _OURS.format(oid="p.oid")
    functions = (
        "SELECT p.proname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace "
        f"WHERE {ours}"
    )
    assert set(names(functions)) == {
        "refuse_ledger_change",
        "refuse_live_attempt_of_idle_job",
        "refuse_audit_change",
        "refuse_audit_update",
        # Its number is compared and never shown or stored elsewhere.
        "tell_access_change",
    }
    connection.execute(
        text("SELECT set_config('test.banned', :p, true)"), {"p": _BANNED_IN_THE_DATABASE}
    )
    banned = "current_setting('test.banned')"
    assert names(f"{functions} AND p.prosrc ~* {banned}") == []
    for definition in (
        "pg_get_constraintdef(oid) FROM pg_constraint",
        "pg_get_triggerdef(oid) FROM pg_trigger",
        "pg_get_indexdef(indexrelid) FROM pg_index",
    ):
        expression = definition.partition(" FROM ")[0]
        assert names(f"SELECT {definition} WHERE {expression} ~* {banned}") == []
    assert names("SELECT viewname::text FROM pg_views WHERE schemaname = 'public'") == []


def test_the_pattern_of_banned_functions_finds_them(connection: Connection):
    for told in ("now()", "NOW ()", "gen_random_uuid()", "current_timestamp", "nextval('x')"):
        found = connection.execute(
            text("SELECT :told ~* :pattern"), {"told": told, "pattern": _BANNED_IN_THE_DATABASE}
        )
        assert found.scalar_one(), told


def test_two_migrators_at_once_take_turns(empty_database_url: str):
    migrators = [subprocess.Popen([*_UPGRADE, empty_database_url]) for _ in range(2)]
    assert [migrator.wait(timeout=300) for migrator in migrators] == [0, 0]
    assert migrate.current(empty_database_url) == migrate.head()


def test_a_migration_gives_up_rather_than_wait_for_a_table(database_url: str):
    engine = create_engine(database_url, poolclass=NullPool)
    with engine.connect() as reader:
        reader.execute(text("SELECT count(*) FROM ledger_entries"))
        with pytest.raises(OperationalError, match="lock timeout"):
            migrate.downgrade(database_url, "base")
    assert migrate.current(database_url) == migrate.head()


def test_an_upgrade_tries_again_after_a_program_that_used_a_table(empty_database_url: str):
    migrate.upgrade(empty_database_url, "0009")
    with create_engine(empty_database_url, poolclass=NullPool).connect() as program:
        program.execute(text("SELECT count(*) FROM api_keys"))
        # A little longer than a migration waits for a lock.
        ends = threading.Timer(LOCK_SECONDS + 0.5, program.rollback)
        ends.start()
        migrate.upgrade(empty_database_url)
        ends.join()
    assert migrate.current(empty_database_url) == migrate.head()


@pytest.mark.full
def test_it_runs_from_any_folder_without_an_ini_file(empty_database_url: str, tmp_path: Path):
    subprocess.run([*_UPGRADE, empty_database_url], cwd=tmp_path, check=True, timeout=300)
    assert migrate.current(empty_database_url) == migrate.head()


def test_what_was_counted_from_the_start_of_a_process_is_no_pace_any_more(empty_database_url: str):
    migrate.upgrade(empty_database_url, "0006")
    with create_engine(empty_database_url, poolclass=NullPool).begin() as connection:
        connection.execute(text("SET session_replication_role = replica"))  # without its owner
        connection.execute(text(_JOB_OF_0006))
    migrate.upgrade(empty_database_url)
    with create_engine(empty_database_url, poolclass=NullPool).connect() as connection:
        kept = connection.execute(
            text("SELECT committed_step, trained_steps, trained_seconds, eta_at FROM jobs")
        )
        assert kept.all() == [(7, None, None, None)]


def test_machines_keep_the_names_that_they_had_before_those_were_stored(empty_database_url: str):
    migrate.upgrade(empty_database_url, "0008")
    with create_engine(empty_database_url, poolclass=NullPool).begin() as connection:
        connection.execute(text("SET session_replication_role = replica"))  # without their job
        connection.execute(text(_MACHINES_OF_0008))
    migrate.upgrade(empty_database_url)
    with create_engine(empty_database_url, poolclass=NullPool).connect() as connection:
        assert machine_names(connection, [UUID(int=1)]) == {
            UUID(int=6): "m1",
            UUID(int=4): "m2",
            UUID(int=7): "m3",
        }
        numbers = connection.execute(text("SELECT ordinal FROM instances ORDER BY id"))
        assert list(numbers.scalars()) == [2, None, 1, 3, None]


def _change(url: str, *statements: str) -> None:
    with create_engine(url, poolclass=NullPool).begin() as connection:
        for statement in statements:
            connection.execute(text(statement))


def _with_keys(url: str, revision: str, *statements: str) -> None:
    """A database at the revision with keys that 0009 made, and with what the statements do."""
    migrate.upgrade(url, "0009")
    _change(url, _KEYS_OF_0009)
    migrate.upgrade(url, revision)
    _change(url, *statements)


def _good_keys(url: str) -> list[str]:
    with create_engine(url, poolclass=NullPool).connect() as connection:
        good = text("SELECT name FROM api_keys WHERE revoked_at IS NULL ORDER BY name")
        return list(connection.execute(good).scalars())


def test_keys_keep_what_they_may_do_and_lesser_ones_end_with_a_downgrade(empty_database_url: str):
    _with_keys(empty_database_url, "head")
    with create_engine(empty_database_url, poolclass=NullPool).connect() as connection:
        keys = connection.execute(
            text("SELECT name, role, is_admin, prefix, expires_at FROM api_keys ORDER BY name")
        )
        assert keys.all() == [
            ("ada", "maintainer", False, None, None),
            ("root", "admin", True, None, None),
        ]
    _change(empty_database_url, "UPDATE api_keys SET role = 'viewer' WHERE name = 'ada'")
    migrate.downgrade(empty_database_url, "0009")
    good = _good_keys(empty_database_url)
    assert good == ["root"], "the release before would let a viewer do all"


def test_a_downgrade_leaves_no_key_or_session_of_a_person(empty_database_url: str):
    _with_keys(empty_database_url, "0013", *_PEOPLE_OF_0013)
    migrate.downgrade(empty_database_url, "0012")
    good = _good_keys(empty_database_url)
    assert good == ["ada", "root"], "the release before knows no people"
    with create_engine(empty_database_url, poolclass=NullPool).connect() as connection:
        sessions = connection.execute(text("SELECT id_hash FROM sessions"))
        assert list(sessions.scalars()) == ["of-a-key"]


def test_memberships_of_before_are_by_hand_and_stay_after_a_downgrade(empty_database_url: str):
    _with_keys(empty_database_url, "0013", *_PEOPLE_OF_0013[:2])
    migrate.upgrade(empty_database_url, "0014")
    with create_engine(empty_database_url, poolclass=NullPool).begin() as connection:
        assert connection.execute(text("SELECT issuer FROM memberships")).scalars().all() == [None]
        connection.execute(text("UPDATE memberships SET issuer = 'https://login.example.com'"))
        connection.execute(text(_ACCOUNT_OF_0014))
    migrate.downgrade(empty_database_url, "0013")
    with create_engine(empty_database_url, poolclass=NullPool).connect() as connection:
        assert connection.execute(text("SELECT role FROM memberships")).scalars().all() == ["admin"]


def test_a_downgrade_ends_keys_that_would_open_more_projects(empty_database_url: str):
    _with_keys(empty_database_url, "0016", *_PEOPLE_OF_0013[:3], _LIMIT_OF_0016)
    migrate.downgrade(empty_database_url, "0015")
    assert _good_keys(empty_database_url) == ["ada", "root"]


_LEA, _DEFAULT = "'00000000-0000-0000-0000-000000000007'", "'00000000-0000-0000-0000-000000000002'"
_PEOPLE_OF_0013 = (
    f"INSERT INTO people (id, name, name_folded, created_at) VALUES ({_LEA}, 'Lea', 'lea', "
    "'2026-03-01Z')",
    f"INSERT INTO memberships VALUES ({_LEA}, {_DEFAULT}, 'admin', '2026-03-01Z', NULL)",
    # As a service key is called.
    "INSERT INTO api_keys (id, project_id, person_id, name, own_name, key_hash, is_admin, role, "
    f"limit_role, created_at) VALUES ('00000000-0000-0000-0000-000000000008', {_DEFAULT}, {_LEA}, "
    "'lea/ada', 'ada', 'c', false, 'viewer', 'admin', '2026-03-01Z')",
    "INSERT INTO sessions (id_hash, key_id, person_id, created_at, expires_at) VALUES "
    f"('of-a-person', NULL, {_LEA}, '2026-03-01Z', '2026-03-08Z'), "
    "('of-a-key', '00000000-0000-0000-0000-000000000005', NULL, '2026-03-01Z', '2026-03-08Z')",
)
_ACCOUNT_OF_0014 = (
    "INSERT INTO identities VALUES ('https://login.example.com', '1', "
    f"{_LEA}, '2026-03-01Z', '2026-03-01Z')"
)
_LIMIT_OF_0016 = (
    "UPDATE api_keys SET project_ids = ARRAY[project_id], "
    "limit_role = CASE WHEN person_id IS NOT NULL THEN 'maintainer' END WHERE name <> 'root'"
)
_KEYS_OF_0009 = """
INSERT INTO projects (id, name, created_at)
VALUES ('00000000-0000-0000-0000-000000000002', 'default', '2026-03-01Z');
INSERT INTO api_keys (id, project_id, name, key_hash, is_admin, created_at)
VALUES ('00000000-0000-0000-0000-000000000005', '00000000-0000-0000-0000-000000000002', 'ada',
    'a', false, '2026-03-01Z'),
    ('00000000-0000-0000-0000-000000000006', '00000000-0000-0000-0000-000000000002', 'root',
    'b', true, '2026-03-01Z')
"""
_MACHINES_OF_0008 = """
INSERT INTO instances (id, job_id, provider, market, state, origin, requested_at, updated_at,
    billing_speed, suspect, terminate_calls, launched_at)
SELECT ('00000000-0000-0000-0000-00000000000' || one)::uuid, job::uuid, 'local', 'spot',
    'terminated', 'launched', requested::timestamptz, '2026-03-01Z', 1, false, 0,
    launched::timestamptz
FROM (VALUES
    (4, '00000000-0000-0000-0000-000000000001', '2026-03-01 10:02Z', '2026-03-01 10:03Z'),
    (5, '00000000-0000-0000-0000-000000000001', '2026-03-01 10:00Z', NULL),
    (6, '00000000-0000-0000-0000-000000000001', '2026-03-01 10:01Z', '2026-03-01 10:04Z'),
    (7, '00000000-0000-0000-0000-000000000001', '2026-03-01 10:02Z', '2026-03-01 10:03Z'),
    (8, NULL, '2026-03-01 10:02Z', '2026-03-01 10:03Z')
) AS told (one, job, requested, launched)
"""
_JOB_OF_0006 = """
INSERT INTO jobs (id, project_id, budget_id, name, spec, spec_digest, state, priority, node_count,
    version, event_seq, next_fence, capacity_key, market_mode, submitted_at, updated_at,
    queue_rank_at, committed_step, trained_steps, trained_seconds, retries_used,
    consecutive_failures, attempts_without_progress)
VALUES ('00000000-0000-0000-0000-000000000001', '00000000-0000-0000-0000-000000000002',
    '00000000-0000-0000-0000-000000000003', 'old', '{}', '', 'recovering', 50, 1, 1, 1, 2, '',
    'spot', '2026-03-01Z', '2026-03-01Z', '2026-03-01Z', 7, 16, 102.0, 0, 0, 0)
"""
