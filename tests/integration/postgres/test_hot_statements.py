"""The statements by hand of the quick routes, on a database that changes below them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from sqlalchemy import Engine, text

from app.domain.access.roles import Role
from app.domain.deployment.credentials import digest
from app.storage.jobs.hot_statements import HotStatements, make_pool
from tests.support.api.people_api import make_key, make_person_key, make_project
from tests.support.servers.table_rows import execute

USED_BEFORE = 12
"""The driver prepares a statement that was used a few times."""


def test_a_prepared_statement_outlives_a_migration_of_its_columns(
    engine: Engine, database_url: str
) -> None:
    project_id = make_project(engine, "alpha")
    key = make_key(engine, project_id)

    async def run() -> None:
        async with make_pool(database_url, max_size=1) as pool:
            hot = HotStatements(pool)
            for _ in range(USED_BEFORE):
                assert await hot.known_key(digest(key), datetime.now(UTC)) is not None
            with engine.begin() as connection:
                change = "ALTER TABLE projects ALTER COLUMN name TYPE varchar(200)"
                connection.execute(text(change))
            for _ in range(3):
                found = await hot.known_key(digest(key), datetime.now(UTC))
                assert found is not None
                assert found.principal.project_name == "alpha"

    asyncio.run(run())


TOLD = [
    "UPDATE projects SET archived_at = now()",
    "UPDATE projects SET rules_version = 1",
    "UPDATE api_keys SET revoked_at = now(), revoked_by = 'x'",
    "UPDATE api_keys SET expires_at = now(), last_used_at = now()",
    "UPDATE people SET disabled_at = now()",
    "INSERT INTO memberships (person_id, project_id, role, created_at) "
    "SELECT people.id, projects.id, 'viewer', now() FROM people, projects "
    "WHERE projects.name = 'beta'",
    "UPDATE memberships SET role = 'viewer'",
    "DELETE FROM memberships",
    "DELETE FROM api_keys",
]
NOT_TOLD = [
    "UPDATE api_keys SET last_used_at = now()",
    "INSERT INTO projects (id, name, created_at) VALUES (gen_random_uuid(), 'gamma', now())",
]


def test_what_changes_a_key_s_rights_is_told_whoever_does_it(
    engine: Engine, database_url: str
) -> None:
    """By hand too, and by an api of another release."""
    project_id = make_project(engine, "alpha")
    make_project(engine, "beta")
    make_person_key(engine, project_id, "Lea", Role.MAINTAINER)

    async def run() -> None:
        async with make_pool(database_url, max_size=1) as pool:
            hot = HotStatements(pool)
            for statement in (*NOT_TOLD, *TOLD):
                before = await hot.access_change()
                assert before is not None
                execute(engine, statement)
                assert (await hot.access_change() != before) is (statement in TOLD), statement

    asyncio.run(run())
