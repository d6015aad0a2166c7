"""The jobs page of a project with ten thousand jobs: what the server needs to answer it.

Asked over HTTP with a browser's session, on a real PostgreSQL. Processor time is that of PostgreSQL
and of this process, where the api is served and a small client asks. Not here: submitting, or the
API's own list (`submit_rate`, `crowded_api`).
"""

from __future__ import annotations

import re
from contextlib import ExitStack
from statistics import median
from time import perf_counter, process_time
from uuid import UUID

import httpx
import psycopg

from app.storage.session.engine import make_engine
from tests.bench.bench_environment import BenchEnvironment, driver_url
from tests.bench.job_rows import (
    add_finished_jobs,
    analyze,
    make_deployment,
    queue_jobs,
    store_offers,
)
from tests.bench.results import Figure
from tests.support.api.agent_api import make_runtime
from tests.support.api.people_api import make_key, people_api, settings_for

QUEUED = 300
_GOAL_MS = 150.0
_TOKEN = re.compile(r'name="form_token" value="([0-9a-f]{64})"')
_ASKED = {
    "running first, sweeps in one row": "/jobs",
    "every job in a row": "/jobs?group=none",
    "page 100": "/jobs?group=none&page=100",
    "by name": "/jobs?name=past-00000099",
    "by label": "/jobs?label=team=vision",
    "most spent first": "/jobs?sort=cost&group=none",
}


def measure(around: BenchEnvironment) -> list[Figure]:
    """Fill, sign in, look at pages in turn."""
    jobs = 1_000 if around.quick else 10_000
    with ExitStack() as stack:
        url = around.postgres.clone()
        engine = make_engine(url)
        stack.callback(engine.dispose)
        project_id = make_deployment(engine)
        runtime = make_runtime(engine, around.new_folder("store"))
        store_offers(runtime)
        queue_jobs(runtime, project_id, QUEUED)
        add_finished_jobs(url, project_id, jobs - QUEUED)
        _name_sweeps(url, project_id)
        analyze(engine)
        key = make_key(engine, project_id)
        settings = settings_for(url, around.valkey_url, around.new_folder("state"))
        api = stack.enter_context(people_api(settings))
        client = stack.enter_context(httpx.Client(base_url=api.url, timeout=60))
        _sign_in(client, key)
        figures = []
        for what, path in _ASKED.items():
            _milliseconds(client, path)
            rounds = 3 if around.quick else 9
            began = process_time() + around.postgres.cpu_seconds()
            taken = median(_milliseconds(client, path) for _ in range(rounds))
            worked = process_time() + around.postgres.cpu_seconds() - began
            cpu = 1000 * worked / rounds
            around.say(f"{what}: {taken:.0f} ms, {cpu:.0f} ms of processor time")
            name = f"jobs page, {jobs:,} jobs: {what}"
            figures.append(
                Figure("jobs-page", f"{name}, CPU", cpu, "ms", _GOAL_MS, detail={"wall_ms": taken})
            )
    return figures


def _name_sweeps(url: str, project_id: UUID) -> None:
    """Half of the jobs belong to sweeps of a hundred."""
    with psycopg.connect(driver_url(url), autocommit=True) as connection:
        connection.execute(
            "UPDATE jobs SET name = 'sweep' || right(name, 9)::int / 100 || '-' || right(name, 9) "
            "WHERE project_id = %s AND name LIKE 'past-%%' AND right(name, 9)::int %% 2 = 0",
            (project_id,),
        )


def _sign_in(client: httpx.Client, key: str) -> None:
    found = _TOKEN.search(client.get("/sign-in").text)
    if found is None:
        raise RuntimeError("the sign-in page has no form")
    form = {"form_token": found[1], "key": key, "next": "/jobs"}
    if client.post("/sign-in", data=form).status_code != 303:
        raise RuntimeError("the key was not accepted")


def _milliseconds(client: httpx.Client, path: str) -> float:
    began = perf_counter()
    answer = client.get(path)
    taken = 1000 * (perf_counter() - began)
    if answer.status_code != 200:
        raise RuntimeError(f"{path}: {answer.status_code}")
    return taken
