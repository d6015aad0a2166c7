"""The statements by hand of the quick routes, on a database that changes below them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from sqlalchemy import Engine, text

from app.domain.deployment.credentials import digest
from app.storage.jobs.hot_statements import HotStatements, make_pool
from tests.support.api.people_api import make_key, make_project

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
                assert await hot.key_owners([digest(key)], datetime.now(UTC))
            with engine.begin() as connection:
                change = "ALTER TABLE projects ALTER COLUMN name TYPE varchar(200)"
                connection.execute(text(change))
            for _ in range(3):
                [owner] = (await hot.key_owners([digest(key)], datetime.now(UTC))).values()
                assert owner.project_name == "alpha"

    asyncio.run(run())
