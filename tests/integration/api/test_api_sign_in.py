"""Keys: none, wrong, revoked; what works without one; bounds on every request."""

from collections.abc import Iterator
from datetime import timedelta

import httpx
import pytest
from sqlalchemy import delete, insert, select

from app.api.main import create_app
from app.api.serving import key_ring
from app.storage.schema import tables
from tests.support.api.agent_api import wait_until
from tests.support.api.people_api import (
    SPEC,
    PeopleApi,
    bearer,
    make_key,
    revoke_key,
)
from tests.support.api.refusals import assert_refused

OPEN = {"/healthz", "/readyz", "/openapi.json", "/api/v1/login"}
"""What answers without a key; the code of a confirmed login is traded for one."""
BAD_AUTHORIZATION = [
    None, "", "Bearer", "Bearer lt_short", "Basic YTpi", f"Bearer lt_{'x' * 43}",
    f"Bearer {'y' * 5000}", "Bearer lt_\u00fc" + "x" * 42,
]  # fmt: skip


def rest_routes() -> list[tuple[str, str]]:
    found = create_app().openapi()["paths"]
    return [
        (method.upper(), path)
        for path, methods in found.items()
        for method in methods
        if path not in OPEN and not path.startswith("/agent/")
    ]


@pytest.mark.parametrize(("method", "path"), rest_routes())
def test_every_route_needs_a_key(api: PeopleApi, method: str, path: str):
    filled = path.replace("{instance_id}", "0" * 32)
    body = {"notice_seconds": None} if "interrupt" in path else None
    answer = httpx.request(method, f"{api.url}{filled}", json=body)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")
    if method != "HEAD":
        assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("authorization", BAD_AUTHORIZATION)
def test_a_bad_key_opens_nothing(api: PeopleApi, authorization: str | None):
    headers = [] if authorization is None else [(b"authorization", authorization.encode("latin-1"))]
    assert_refused(httpx.post(f"{api.url}/api/v1/jobs", json=SPEC, headers=headers), 401, "key")
    assert api.count(tables.jobs) == 0


def test_a_revoked_key_ends_when_the_change_is_noticed(api: PeopleApi):
    assert timedelta(seconds=1) >= key_ring._ASKED_EVERY
    key = make_key(api.engine, api.project_id, "short-lived")
    headers = bearer(key)
    assert api.client.get("/api/v1/jobs", headers=headers).status_code == 200
    revoke_key(api.engine, key)
    wait_until(lambda: api.client.get("/api/v1/jobs", headers=headers).status_code != 200)
    assert_refused(api.client.get("/api/v1/jobs", headers=headers), 401, "revoked")


def test_a_key_of_after_a_restored_backup_is_refused_with_what_to_do(api: PeopleApi):
    keys = tables.api_keys
    with api.engine.connect() as connection:
        backup = [dict(row) for row in connection.execute(select(keys)).mappings()]
    headers = bearer(make_key(api.engine, api.project_id, "late"))
    assert api.client.get("/api/v1/jobs", headers=headers).status_code == 200
    with api.engine.begin() as connection:
        connection.execute(delete(keys))
        connection.execute(insert(keys), backup)
    wait_until(lambda: api.client.get("/api/v1/jobs", headers=headers).status_code != 200)
    answer = api.client.get("/api/v1/jobs", headers=headers)
    assert (answer.status_code, answer.headers["www-authenticate"]) == (
        401,
        'Bearer realm="lowtide"',
    )
    assert answer.json()["detail"] == (
        "This API key is unknown, has expired or has been revoked: use another one, or ask whoever "
        "runs this deployment for a new one. A database that was restored from a backup has no "
        "keys of after it."
    )
    assert api.client.get("/api/v1/jobs").status_code == 200, "a key of the backup"


def test_a_key_is_stored_as_its_digest_alone(api: PeopleApi):
    with api.engine.connect() as connection:
        rows = connection.execute(select(tables.api_keys)).mappings().all()
    assert not any(api.key in str(value) for row in rows for value in row.values())


def test_a_large_body_is_refused_before_it_is_read(api: PeopleApi):
    headers = {"Content-Type": "application/json"}
    for path, limit in (("/api/v1/jobs", "256 KiB"), ("/api/v1/jobs/batch", "1 MiB")):
        answer = api.client.post(path, content=b"x" * 10_000_000, headers=headers)
        assert_refused(answer, 413, limit)


def test_a_large_body_without_a_length_is_refused_on_the_way(api: PeopleApi):
    def pieces() -> Iterator[bytes]:
        for _ in range(24):
            yield b" " * 65_536

    headers = {"Content-Type": "application/json"}
    answer = api.client.post("/api/v1/jobs", content=pieces(), headers=headers)
    assert answer.status_code == 413


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/v1/jobs/a%00b", 400),
        ("GET", "/api/v1/jobs?name=%00", 400),
        ("GET", "/api/v1/jobs?name=" + "x" * 9_000, 414),
        ("GET", "/api/v1/jobs?name=" + "x" * 64, 422),
        ("GET", "/api/v1/jobs/" + "x" * 1_000, 404),
        ("GET", "/api/v1/jobs/%ff%fe", 404),
        ("GET", "/api/v1/jobs/a/events?after=" + "9" * 30, 422),
        ("GET", "/api/v1/instances?job=%F0%9F%92%A9", 404),
        ("GET", "/api/v1/nothing", 404),
        ("DELETE", "/api/v1/jobs", 405),
        ("POST", "/api/v1/offers", 405),
        ("POST", "/api/v1/instances/not-an-id/interrupt", 422),
    ],
)
def test_a_bad_address_gets_a_sentence(api: PeopleApi, method: str, path: str, status: int):
    body = {"notice_seconds": 1} if method == "POST" else None
    answer = api.client.request(method, path, json=body)
    assert_refused(answer, status)
    assert len(answer.json()["detail"]) > 10
