"""Keys and projects over REST: made, used, rotated, revoked, archived; and what stops mistakes."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import httpx
import pytest
from sqlalchemy import select

from app.domain.access.roles import Role
from app.domain.deployment.credentials import digest
from app.storage.schema import tables
from tests.support.api.agent_api import wait_until
from tests.support.api.invited_people import invited
from tests.support.api.people_api import (
    SPEC,
    PeopleApi,
    bearer,
    browser_of,
    hidden_field,
    make_key,
    make_project,
    post,
    revoke_key,
)
from tests.support.api.refusals import assert_refused
from tests.support.servers.table_rows import change_rows, fetch, fetch_value

KEYS = tables.api_keys


def made(api: PeopleApi, name: str, **body: Any) -> dict[str, Any]:
    answer = post(api, "/keys", {"name": name, **body})
    assert answer.status_code == 201, answer.text
    document: dict[str, Any] = answer.json()
    return document


def opens(api: PeopleApi, key: str) -> bool:
    return api.client.get("/api/v1/jobs", headers=bearer(key)).status_code == 200


def admin_of(api: PeopleApi, name: str) -> dict[str, str]:
    return bearer(make_key(api.engine, api.project_id, name, Role.ADMIN))


def test_a_key_is_shown_once_and_told_apart_by_its_beginning(api: PeopleApi):
    key = made(api, "ci", role="submitter", expires_in="30d")
    assert opens(api, key["key"])
    [listed] = [row for row in api.items("/keys") if row["name"] == "ci"]
    assert listed == {name: value for name, value in {**key, **listed}.items() if name != "key"}
    assert listed["prefix"] == key["key"][:7]
    assert (listed["created_by"], listed["role"]) == ("person:ada", "submitter")
    assert listed["expires_at"] is not None
    assert listed["last_used_at"] is not None
    row = fetch(api.engine, select(KEYS).where(KEYS.c.name == "ci"))[0]
    assert not any(key["key"] in str(value) for value in row)
    assert key["key"] not in str(api.items("/keys"))


def test_who_am_i(api: PeopleApi):
    assert api.get("/me") == {
        "key": "ada",
        "key_id": str(fetch_value(api.engine, select(KEYS.c.id).where(KEYS.c.name == "ada"))),
        "person": None,
        "role": "maintainer",
        "project": "admin",
        "projects": None,
    }


def test_a_use_is_written_once_a_minute(api: PeopleApi):
    key = make_key(api.engine, api.project_id, "used")
    last_use = select(KEYS.c.last_used_at).where(KEYS.c.name == "used")
    assert opens(api, key)
    first = fetch_value(api.engine, last_use)
    api.parts.keys._remembered.clear()
    assert opens(api, key)
    assert fetch_value(api.engine, last_use) == first
    change_rows(api.engine, KEYS, KEYS.c.name == "used", last_used_at=first - timedelta(minutes=2))
    api.parts.keys._remembered.clear()
    assert opens(api, key)
    assert fetch_value(api.engine, last_use) > first


def test_a_revoked_key_opens_nothing_within_two_seconds(api: PeopleApi):
    key = made(api, "leaked")["key"]
    assert opens(api, key)
    ended = post(api, "/keys/leaked/revoke").json()
    assert (ended["revoked_by"], ended["name"]) == ("person:ada", "leaked")
    wait_until(lambda: not opens(api, key), seconds=2)
    assert post(api, "/keys/leaked/revoke").json() == ended, "again changes nothing"
    assert_refused(post(api, "/keys/leaked/rotate"), 409, "revoked")
    # Histories name keys, so that another key must not be taken for this one.
    assert_refused(post(api, "/keys", {"name": "leaked"}), 409, "never used again")


def test_a_rotated_key_overlaps_with_its_former_secret_for_as_long_as_was_said(api: PeopleApi):
    former = made(api, "rotated")["key"]
    now = post(api, "/keys/rotated/rotate", {"overlap": "1h"}).json()
    assert now["key"] != former
    assert opens(api, former)
    assert opens(api, now["key"])
    ended = api.parts.runtime.clock.now() - timedelta(seconds=1)
    change_rows(api.engine, KEYS, KEYS.c.name == "rotated", former_until_at=ended)
    api.parts.keys._remembered.clear()
    assert not opens(api, former)
    at_once = post(api, "/keys/rotated/rotate", {"overlap": "0s"}).json()
    assert at_once["former_until_at"] is None
    api.parts.keys._remembered.clear()
    assert not opens(api, now["key"])
    assert opens(api, at_once["key"])
    post(api, "/keys/rotated/rotate")
    post(api, "/keys/rotated/revoke")
    assert (
        fetch_value(api.engine, select(KEYS.c.former_hash).where(KEYS.c.name == "rotated")) is None
    )
    api.parts.keys._remembered.clear()
    assert not opens(api, at_once["key"])


def test_a_key_ends_with_its_time(api: PeopleApi):
    key = made(api, "short", expires_in="1h")["key"]
    assert opens(api, key)
    past = api.parts.runtime.clock.now() - timedelta(seconds=1)
    change_rows(api.engine, KEYS, KEYS.c.name == "short", expires_at=past)
    api.parts.keys._remembered.clear()
    answer = api.client.get("/api/v1/jobs", headers=bearer(key))
    assert_refused(answer, 401, "expired")
    assert_refused(post(api, "/keys/short/rotate"), 409, "has expired")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "name"),
        ({"name": "Ärger"}, "cannot name a key"),
        ({"name": "a/b"}, "cannot name a key"),
        ({"name": "x", "role": "king"}, "role"),
        ({"name": "x", "expires_in": "0s"}, "expires_in: write from 1s to 365d"),
        ({"name": "x", "expires_in": "tomorrow"}, "expires_in: is not a duration"),
        ({"name": "x", "expires_in": "9999d"}, "expires_in"),
        ({"name": "x", "owner": "me"}, "owner"),
    ],
)
def test_a_bad_key_is_refused_and_not_made(api: PeopleApi, body: dict[str, Any], said: str):
    before = api.count(KEYS)
    assert_refused(post(api, "/keys", body), 422, said)
    assert api.count(KEYS) == before


def test_a_maintainer_neither_makes_nor_ends_an_admins_key(api: PeopleApi):
    before = api.count(KEYS)
    for role in ("admin", "auditor"):
        refused = post(api, "/keys", {"name": "x", "role": role})
        assert_refused(refused, 403, "with the roles viewer, submitter, maintainer")
    assert api.count(KEYS) == before
    make_key(api.engine, api.project_id, "boss", Role.ADMIN)
    for order in ("rotate", "revoke"):
        assert_refused(post(api, f"/keys/boss/{order}"), 403, "not admin")
        assert_refused(post(api, f"/keys/nobody/{order}"), 404, "no key 'nobody'")


def test_the_last_admin_stays_whoever_is_quicker(api: PeopleApi):
    keys = [make_key(api.engine, api.project_id, f"root-{n}", Role.ADMIN) for n in range(2)]
    others = select(KEYS.c.name).where(KEYS.c.role == Role.ADMIN, KEYS.c.revoked_at.is_(None))
    for row in fetch(api.engine, others):
        if not row.name.startswith("root-"):
            change_rows(
                api.engine, KEYS, KEYS.c.name == row.name,
                revoked_at=api.parts.runtime.clock.now(),
            )  # fmt: skip

    def revoke(number: int) -> int:
        # Each ends the other's.
        path = f"{api.url}/api/v1/keys/root-{1 - number}/revoke"
        return httpx.post(path, json={}, headers=bearer(keys[number]), timeout=20).status_code

    with ThreadPoolExecutor(2) as pool:
        answers = sorted(pool.map(revoke, range(2)))
    left = [row.name for row in fetch(api.engine, others)]
    assert len(left) == 1, answers
    assert answers in ([200, 409], [200, 401])
    survivor = keys[int(left[0][-1])]
    path = f"{api.url}/api/v1/keys/{left[0]}/revoke"
    refused = httpx.post(path, json={}, headers=bearer(survivor), timeout=20)
    assert_refused(refused, 409, "Make a second key with the role admin first")
    # One that ends by itself is no second one.
    body = {"name": "for-a-day", "role": "admin", "expires_in": "1d"}
    assert httpx.post(f"{api.url}/api/v1/keys", json=body, headers=bearer(survivor)).is_success
    refused = httpx.post(path, json={}, headers=bearer(survivor), timeout=20)
    assert_refused(refused, 409, "without an end")


def test_a_project_is_made_entered_and_archived(api: PeopleApi):
    root = admin_of(api, "maker")
    assert_refused(
        post(api, "/projects", {"name": "No Name"}, **root), 422, "cannot name a project"
    )
    project = post(api, "/projects", {"name": "vision"}, **root)
    assert project.status_code == 201, project.text
    assert_refused(post(api, "/projects", {"name": "vision"}, **root), 409, "already")
    inside = {**root, "Lowtide-Project": "vision"}
    key = post(api, "/keys", {"name": "lea", "role": "maintainer"}, **inside).json()
    assert key["project"] == "vision"
    hers = bearer(key["key"])
    once = {**hers, "Idempotency-Key": "once"}
    assert post(api, "/jobs", {**SPEC, "name": "hers"}, **once).status_code == 201
    assert api.client.get("/api/v1/jobs/hers").status_code == 404, "another project's"
    [listed] = [
        row
        for row in api.client.get("/api/v1/projects", headers=root).json()["items"]
        if row["name"] == "vision"
    ]
    assert (listed["jobs"], listed["keys"], listed["archived_at"]) == (1, 1, None)
    assert post(api, "/projects/vision/archive", **root).json()["archived_at"] is not None
    api.parts.keys._remembered.clear()
    assert_refused(post(api, "/jobs", {**SPEC, "name": "late"}, **hers), 422, "archived")
    # An answer that was lost is told again: the job is there.
    assert post(api, "/jobs", {**SPEC, "name": "hers"}, **once).status_code == 200
    assert_refused(post(api, "/jobs", {**SPEC, "name": "late"}, **inside), 422, "archived")
    assert api.client.get("/api/v1/jobs/hers", headers=hers).status_code == 200
    assert post(api, "/projects/vision/restore", **root).json()["archived_at"] is None
    api.parts.keys._remembered.clear()
    assert post(api, "/jobs", {**SPEC, "name": "late"}, **hers).status_code == 201
    assert_refused(post(api, "/projects/nothing/archive", **root), 404, "no project 'nothing'")


def test_a_spec_chooses_the_project_of_a_key_that_opens_it(api: PeopleApi):
    make_project(api.engine, "chosen")
    root = admin_of(api, "chooser")
    spec = {**SPEC, "name": "placed", "project": "chosen"}
    assert post(api, "/jobs/check", spec, **root).status_code == 200
    answer = post(api, "/jobs", spec, **root)
    assert (answer.status_code, answer.json()["project"]) == (201, "chosen")
    # Its own key opens no other, and does not learn whether there is one.
    for project in ("chosen", "not-there"):
        refused = post(api, "/jobs", {**spec, "name": "not-mine", "project": project})
        assert_refused(refused, 404, f"There is no project '{project}' that the key 'ada' opens")
    crossed = {**root, "Lowtide-Project": "admin"}
    assert post(api, "/jobs", {**spec, "name": "crossed"}, **crossed).status_code == 201


def test_who_acts_in_another_project_is_not_taken_for_a_key_of_it(api: PeopleApi):
    other = make_project(api.engine, "crowded")
    make_key(api.engine, other, "visitor")
    root = {**admin_of(api, "visitor"), "Lowtide-Project": "crowded"}
    assert post(api, "/jobs", {**SPEC, "name": "theirs"}, **root).status_code == 201
    [event] = api.client.get("/api/v1/jobs/theirs/events", headers=root).json()["items"]
    assert event["actor"] == "person:admin/visitor"


def test_a_key_makes_none_that_outlives_it(api: PeopleApi):
    guest = bearer(made(api, "guest", role="maintainer", expires_in="7d")["key"])
    for life in ({}, {"expires_in": "8d"}):
        refused = post(api, "/keys", {"name": "longer", **life}, **guest)
        assert_refused(refused, 422, "your own key ends at")
    assert post(api, "/keys", {"name": "shorter", "expires_in": "6d"}, **guest).status_code == 201


def test_a_former_secret_opens_no_page(api: PeopleApi):
    former = made(api, "turned")["key"]
    assert post(api, "/keys/turned/rotate").status_code == 200
    assert opens(api, former)
    with httpx.Client(base_url=api.url, timeout=60) as client:
        token = hidden_field(client.get("/sign-in").text, "form_token")
        answer = client.post("/sign-in", data={"key": former, "form_token": token})
    assert answer.status_code == 401
    assert "unknown, has expired or has been revoked" in answer.text


def test_a_browser_is_signed_out_with_its_key(api: PeopleApi):
    for name, order in (("paged", "rotate"), ("ended", "revoke")):
        with browser_of(api, made(api, name)["key"]) as browser:
            assert browser.get("/jobs").status_code == 200
            assert post(api, f"/keys/{name}/{order}").status_code == 200
            assert browser.get("/jobs").headers["location"].startswith("/sign-in")


def test_what_a_revoked_key_has_submitted_goes_on(api: PeopleApi):
    key = made(api, "leaver")["key"]
    assert post(api, "/jobs", {**SPEC, "name": "orphan"}, **bearer(key)).status_code == 201
    revoke_key(api.engine, key)
    assert api.get("/jobs/orphan")["state"] == "queued"
    owner = select(KEYS.c.key_hash).join(tables.jobs, tables.jobs.c.owner_key_id == KEYS.c.id)
    assert fetch_value(api.engine, owner.where(tables.jobs.c.name == "orphan")) == digest(key)


def test_a_key_is_revoked_on_the_page_of_its_owner(api: PeopleApi):
    tom = invited(api, "Tom")
    page = tom.browser.get("/account").text
    found = re.search(r"/account/keys/([\w-]+)/revoke", page)
    assert found is not None
    form = {"form_token": hidden_field(page, "form_token")}
    assert tom.browser.post(found[0], form).status_code == 303
    wait_until(
        lambda: api.client.get("/api/v1/jobs", headers=tom.headers).status_code == 401, seconds=2
    )
    assert tom.browser.get("/jobs").status_code == 200, "the session was the person's"


def test_a_key_in_an_address_opens_nothing(api: PeopleApi):
    """Addresses are logged by proxies and kept by browsers."""
    key = make_key(api.engine, api.project_id, "in-an-address")
    with httpx.Client(base_url=api.url, timeout=60) as stranger:
        for name in ("key", "api_key", "token", "access_token", "authorization"):
            asked = {name: key if name != "authorization" else f"Bearer {key}"}
            answer = stranger.get("/api/v1/me", params=asked)
            assert_refused(answer, 422, field=name)
            assert key not in answer.text
            page = stranger.get("/jobs", params=asked)
            assert page.is_redirect, name
            assert page.headers["location"].startswith("/sign-in"), name
            assert "set-cookie" not in page.headers
        for pair in ((key, ""), ("", key), ("lea", key)):
            assert stranger.get("/api/v1/me", auth=pair).status_code == 401
