"""Health: alive, ready, and figures; what still works while a server is away."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID, uuid4

import httpx
from sqlalchemy import text

from app.storage.schema import money_tables, tables
from app.storage.session import migrate
from app.storage.session.engine import make_engine
from app.storage.session.revision import newest_revision
from tests.support.api.agent_api import wait_until
from tests.support.api.people_api import (
    PeopleApi,
    make_own_gang,
    people_api,
    price_pool,
    settings_for,
)
from tests.support.api.refusals import assert_refused
from tests.support.servers.postgres import PostgresForTests
from tests.support.servers.table_rows import add_row, change_row, execute, row_of

NO_REDIS = "redis://127.0.0.1:1/0"


def test_the_newest_revision_is_the_migrations_own():
    assert newest_revision() == migrate.head()


def test_a_ready_api_says_so(api: PeopleApi):
    assert httpx.get(f"{api.url}/healthz").json() == {"status": "ok"}
    answer = httpx.get(f"{api.url}/readyz")
    document = answer.json()
    disks = document.pop("disks")
    assert (answer.status_code, document) == (
        200,
        {"status": "ready", "database": "ok", "redis": "ok"},
    )
    assert set(disks) == {"state folder", "logs", "object store", "local cloud"}
    assert all(one["free_bytes"] > 0 and not one["full"] for one in disks.values())
    metrics = api.figures()
    assert 'lowtide_disk_free_bytes{folder="object store"} ' in metrics


def test_an_older_schema_is_not_ready_and_a_newer_one_is(api: PeopleApi):
    """During an upgrade the former api serves until its successor is there."""
    try:
        execute(api.engine, "UPDATE alembic_version SET version_num = '9999'")
        newer = api.client.get("/readyz")
        execute(api.engine, "UPDATE alembic_version SET version_num = '0001'")
        answer = api.client.get("/readyz")
    finally:
        execute(api.engine, "UPDATE alembic_version SET version_num = :head", head=migrate.head())
    assert newer.status_code == 200, newer.text
    assert answer.status_code == 503
    assert "0001" in answer.json()["database"]
    assert httpx.get(f"{api.url}/healthz").status_code == 200


def test_jobs_are_taken_while_redis_is_away(postgres: PostgresForTests, tmp_path: Path):
    with people_api(settings_for(postgres.clone(), NO_REDIS, tmp_path)) as up:
        up.submitted()
        ready = httpx.get(f"{up.url}/readyz")
    assert ready.status_code == 200
    assert "does not answer" in ready.json()["redis"]


def test_a_lost_database_is_a_problem_and_comes_back(
    postgres: PostgresForTests, valkey_url: str, tmp_path: Path
):
    url = postgres.clone()
    admin = make_engine(postgres.url_of("postgres"))
    name = url.rpartition("/")[2]
    with people_api(settings_for(url, valkey_url, tmp_path)) as up, admin.connect() as connection:
        up.submitted()
        connection = connection.execution_options(isolation_level="AUTOCOMMIT")
        connection.execute(text(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false"))
        # It waits for each to end: a connection that still lives would take the job.
        ends = text(
            "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE datname = :name"
        )
        connection.execute(ends, {"name": name})
        answers = [up.submit(), up.client.get("/api/v1/offers")]
        unready = httpx.get(f"{up.url}/readyz", timeout=60)
        connection.execute(text(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true"))
        for answer in answers:
            assert_refused(answer, 503, "try again")
        assert unready.status_code == 503
        wait_until(lambda: up.client.get("/api/v1/jobs").status_code == 200)
        assert len(up.client.get("/api/v1/jobs").json()["items"]) == 1
    admin.dispose()


def test_figures_tell_of_requests_and_the_deployment(api: PeopleApi):
    again, new = UUID(api.submitted()["id"]), UUID(api.submitted()["id"])
    hour, now = timedelta(hours=1), datetime.now(UTC)
    change_row(api.engine, tables.jobs, again, submitted_at=now - 3 * hour)
    change_row(api.engine, tables.jobs, new, submitted_at=now - hour)
    add_row(
        api.engine, tables.attempts, id=uuid4(), job_id=again, fence=1, state="interrupted",
        node_count=1, created_at=now - 2 * hour, updated_at=now, form_until_at=now, ended_at=now,
        launches_made=1, best_step=0, committed_step=0,
    )  # fmt: skip
    add_row(
        api.engine,
        tables.controller_runs,
        controller="claim_jobs",
        ran_at=text("'2026-01-01T00:00:00Z'"),
        worked=1,
    )
    api.client.get("/api/v1/jobs/no-such-job")
    api.client.get("/no/such/route")
    text_of = api.figures()
    lines = dict(line.rsplit(" ", 1) for line in text_of.splitlines() if line[0] != "#")
    posted = 'lowtide_api_requests_total{method="POST",route="/api/v1/jobs",status="201"}'
    assert float(lines[posted]) == 2
    missed = 'lowtide_api_requests_total{method="GET",route="/api/v1/jobs/{job}",status="404"}'
    assert float(lines[missed]) == 1
    assert "no-such-job" not in text_of
    assert "/no/such" not in text_of
    assert float(lines['lowtide_jobs{state="queued"}']) == 2
    assert float(lines["lowtide_queue_depth"]) == 2
    assert 3_600 < float(lines["lowtide_queue_oldest_wait_seconds"]) < 4_000
    assert float(lines["lowtide_launch_oldest_open_seconds"]) == 0
    assert float(lines['lowtide_instances{state="launched"}']) == 0
    assert float(lines['lowtide_controller_age_seconds{controller="claim_jobs"}']) > 0


def test_figures_tell_of_agents_and_money_by_project(api: PeopleApi):
    price_pool(api, 900_000)
    gang = make_own_gang(api, 2, name="costly")
    instance_id, now = gang.instance_ids[0], datetime.now(UTC)
    change_row(api.engine, tables.instances, instance_id, unreachable_at=now)
    for day, amount in ((now.date(), 1_250_000), (now.date() - timedelta(days=1), 9_000_000)):
        add_row(
            api.engine, money_tables.cost_rollups, instance_id=instance_id, rollup_key=str(day),
            day=day, project_id=api.project_id, component="instance", kind="usage",
            amount_microusd=amount, entries=1,
        )  # fmt: skip
    name = row_of(api.engine, tables.projects, id=api.project_id).name
    lines = api.figures().splitlines()
    assert f'lowtide_hourly_cost_usd{{project="{name}"}} 1.8' in lines
    assert f'lowtide_cost_today_usd{{project="{name}"}} 1.25' in lines
    assert "lowtide_instances_unreachable 1.0" in lines
    assert "lowtide_books_differences 0.0" in lines
    silence = "lowtide_agent_oldest_report_seconds "
    assert [line for line in lines if line.startswith(silence)] == [f"{silence}0.0"]


def test_the_description_covers_the_spec_and_refers_to_nothing_missing(api: PeopleApi):
    page = httpx.get(f"{api.url}/openapi.json", timeout=60).json()
    shapes = page["components"]["schemas"]
    assert "trainer" in shapes["JobSpec"]["properties"]
    assert "JobDetail" in shapes

    def references(value: object) -> Iterator[str]:
        if isinstance(value, dict):
            yield from (v for k, v in value.items() if k == "$ref" and isinstance(v, str))
            for inner in value.values():
                yield from references(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from references(inner)

    missing = {ref for ref in references(page) if ref.rpartition("/")[2] not in shapes}
    assert missing == set()
