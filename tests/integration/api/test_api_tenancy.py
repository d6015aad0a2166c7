"""What a key may see and name: the books of its own project, and folders that are allowed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.api.people_api import (
    SPEC,
    PeopleApi,
    bearer,
    make_key,
    make_project,
    people_api,
    settings_for,
)
from tests.support.servers.postgres import PostgresForTests
from tests.support.servers.table_rows import execute


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tenancy")


@pytest.fixture(scope="module")
def api(postgres: PostgresForTests, valkey_url: str, folder: Path) -> Iterator[PeopleApi]:
    roots = frozenset({folder / "allowed"})
    settings = settings_for(postgres.clone(), valkey_url, folder, checkpoint_roots=roots)
    with people_api(settings) as up:
        yield up


def verified(api: PeopleApi, key: str) -> dict[str, Any]:
    answer = httpx.get(f"{api.url}/api/v1/costs/verify", headers=bearer(key), timeout=20)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_a_key_sees_the_books_of_its_project_and_an_admin_key_all(api: PeopleApi):
    job = api.submitted(name="own")
    execute(api.engine, "UPDATE budgets SET spent_microusd = 7 WHERE job_id = :id", id=job["id"])
    other = make_project(api.engine, "other")
    stranger = make_key(api.engine, other)
    admin = make_key(api.engine, other, "root", is_admin=True)
    [own] = verified(api, api.key)["differences"]
    assert job["id"] in own["what"]
    assert verified(api, stranger)["differences"] == []
    assert verified(api, stranger)["closed"]
    assert [one["what"] for one in verified(api, admin)["differences"]] == [own["what"]]


def test_another_projects_job_is_not_verified(api: PeopleApi):
    api.submitted(name="hidden")
    path = f"{api.url}/api/v1/costs/verify?job=hidden"
    assert httpx.get(path, headers=api.as_stranger("third"), timeout=20).status_code == 404


def test_a_name_that_no_job_has_is_answered_with_near_ones_of_its_own_project(api: PeopleApi):
    api.submitted(name="bert-ft")
    stranger = api.as_stranger("fourth")

    def told(headers: dict[str, str]) -> list[str]:
        one = api.client.get("/api/v1/jobs/bret-ft", headers=headers)
        body = {"action": "cancel", "ids": ["bret-ft"]}
        many = api.client.post("/api/v1/jobs/batch", json=body, headers=headers)
        assert one.status_code == 404
        return [one.json()["detail"], many.json()["items"][0]["detail"]]

    begin = "There is no job 'bret-ft' in this project; "
    assert told({}) == [f"{begin}did you mean 'bert-ft'?"] * 2
    assert told(stranger) == [f"{begin}see the list of jobs (`lowtide jobs`)."] * 2


def test_a_checkpoint_folder_must_lie_where_the_deployment_allows(api: PeopleApi, folder: Path):
    inside, outside = folder / "allowed" / "mine", folder / "elsewhere"
    api.submitted(checkpoint={"uri": inside.as_uri()})
    answer = api.submit({**SPEC, "checkpoint": {"uri": outside.as_uri()}})
    assert answer.status_code == 422
    [error] = answer.json()["errors"]
    assert error["field"] == "checkpoint.uri"
    assert "LOWTIDE_CHECKPOINT_ROOTS" in error["message"]
    assert str(folder / "allowed") in error["message"]
    assert not outside.exists()


def test_a_link_does_not_lead_out_of_the_allowed_folders(api: PeopleApi, folder: Path):
    (folder / "allowed").mkdir(exist_ok=True)
    (folder / "target").mkdir()
    (folder / "allowed" / "link").symlink_to(folder / "target")
    uri = (folder / "allowed" / "link" / "ckpt").as_uri()
    assert api.submit({**SPEC, "checkpoint": {"uri": uri}}).status_code == 422
    assert list((folder / "target").iterdir()) == []
