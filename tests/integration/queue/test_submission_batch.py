"""Submissions that are stored together: each has its own answer, whatever the others are."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import psycopg
from sqlalchemy import Engine, select, text

from app.adapters.system_entropy import SystemEntropy
from app.domain.lifecycle.events import Actor, ActorKind
from app.domain.projects.resolve_spec import as_written
from app.domain.spec.job_spec import parse_spec
from app.orchestration.queue.submit_job import build_submission
from app.storage.jobs.hot_statements import HotStatements, make_pool
from app.storage.jobs.job_submission import Submission
from app.storage.schema import tables
from tests.support.api.people_api import SPEC, make_project

ADA = Actor(ActorKind.PERSON, "ada")


def made(project_id: UUID, name: str, key: str | None = None) -> Submission:
    spec = parse_spec({**SPEC, "name": name})
    return build_submission(
        as_written(spec), project_id, ADA, datetime.now(UTC), SystemEntropy(), key
    )


def store(url: str, submissions: list[Submission]) -> list[Any]:
    """The answers to submissions that come at the same instant; errors as values."""

    async def all_at_once(submit: Callable[[Submission], Awaitable[bool]]) -> list[Any]:
        return await asyncio.gather(*map(submit, submissions), return_exceptions=True)

    async def run() -> list[Any]:
        async with make_pool(url) as pool:
            return await all_at_once(HotStatements(pool).submit)

    return asyncio.run(run())


def names(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        return sorted(connection.scalars(select(tables.jobs.c.name)))


def test_many_at_once_are_all_stored(engine: Engine, database_url: str):
    project_id = make_project(engine, "p")
    wanted = [f"job-{number:03d}" for number in range(150)]
    assert store(database_url, [made(project_id, name) for name in wanted]) == [True] * 150
    assert names(engine) == wanted
    with engine.connect() as connection:
        for table in (tables.budgets, tables.events):
            assert len(connection.execute(select(table)).all()) == 150


def test_of_equal_names_and_of_equal_keys_one_is_stored(engine: Engine, database_url: str):
    project_id = make_project(engine, "p")
    same_name = [made(project_id, "same") for _ in range(5)]
    same_key = [made(project_id, f"k-{number}", "key") for number in range(5)]
    answers = store(database_url, [*same_name, *same_key, made(project_id, "free")])
    assert sorted(answers[:5]) == sorted(answers[5:10]) == [False] * 4 + [True]
    assert answers[10] is True
    assert len(names(engine)) == 3


def test_a_refused_one_takes_no_other_with_it(engine: Engine, database_url: str):
    project_id = make_project(engine, "p")
    good = [made(project_id, f"good-{number}") for number in range(10)]
    nobodys = replace(made(project_id, "bad"), project_id=uuid4())
    answers = store(database_url, [*good[:5], nobodys, *good[5:]])
    assert isinstance(answers.pop(5), psycopg.errors.ForeignKeyViolation)
    assert answers == [True] * 10
    assert names(engine) == [f"good-{number}" for number in range(10)]


def test_who_comes_in_the_instant_that_both_statements_end_is_stored(
    engine: Engine, database_url: str
):
    """Two statements wait for one lock, and a loop that is held up hears of both ends at once."""
    project_id = make_project(engine, "p")

    answered: list[str] = []

    async def client(submit: Callable[[Submission], Awaitable[bool]], name: str) -> None:
        assert await submit(made(project_id, name))
        answered.append(name)
        if answered == [name]:
            assert await submit(made(project_id, "another"))

    async def hold_up() -> None:
        while True:
            time.sleep(0.05)  # noqa: ASYNC251
            await asyncio.sleep(0)

    async def run() -> None:
        async with make_pool(database_url) as pool:
            submit = HotStatements(pool).submit
            with engine.connect() as connection:
                connection.execute(text("LOCK TABLE jobs IN EXCLUSIVE MODE"))
                clients = []
                for name in ("a", "b"):
                    clients.append(asyncio.create_task(client(submit, name)))
                    await asyncio.sleep(0.3)
                holding = asyncio.create_task(hold_up())
                connection.commit()
            try:
                await asyncio.wait_for(asyncio.gather(*clients), 120)
            finally:
                holding.cancel()

    asyncio.run(run())
    assert names(engine) == ["a", "another", "b"]
