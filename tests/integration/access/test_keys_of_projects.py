"""Keys that name projects: a person's for some of its own, a service key for several."""

from __future__ import annotations

import secrets
from typing import Any

import httpx
import pytest
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError

from app.domain.access.login_challenge import challenge_of
from app.domain.access.roles import Role
from app.storage.schema import tables
from tests.support.api.agent_api import wait_until
from tests.support.api.invited_people import (
    Browser,
    Invited,
    accept_with,
    admin_headers,
    confirm_login,
    invitation,
    invited,
)
from tests.support.api.people_api import (
    SPEC,
    PeopleApi,
    bearer,
    browser_of,
    hidden_field,
    make_project,
    post,
)
from tests.support.api.refusals import assert_refused
from tests.support.servers.table_rows import change_rows, fetch_value

KEYS = tables.api_keys
Headers = dict[str, str]


@pytest.fixture(scope="module")
def root(api: PeopleApi) -> Headers:
    for name in ("vision", "speech"):
        make_project(api.engine, name)
    return admin_headers(api, "root")


@pytest.fixture(scope="module")
def lea(api: PeopleApi, root: Headers) -> Invited:
    """Maintainer of `vision` and `speech`, admin of `admin`, and so of all."""
    return of_three(api, root, "Lea", "admin")


@pytest.fixture(scope="module")
def mia(api: PeopleApi, root: Headers) -> Invited:
    """Maintainer of `vision` alone."""
    return invited(api, "Mia", "maintainer", {**root, "Lowtide-Project": "vision"})


@pytest.fixture(scope="module")
def sam(api: PeopleApi, root: Headers) -> Invited:
    """Maintainer of `speech` alone."""
    return invited(api, "Sam", "maintainer", {**root, "Lowtide-Project": "speech"})


def of_three(api: PeopleApi, root: Headers, name: str, role: str) -> Invited:
    person = invited(api, name, role, root)
    for project in ("vision", "speech"):
        token = invitation(api, {**root, "Lowtide-Project": project}, "maintainer")
        assert accept_with(person.browser, token, "unread").status_code == 200
    return person


def send(
    api: PeopleApi, path: str, body: Any, headers: Headers, project: str = ""
) -> httpx.Response:
    return post(api, path, body, **headers, **({"Lowtide-Project": project} if project else {}))


def made(api: PeopleApi, path: str, headers: Headers, name: str, **body: Any) -> dict[str, Any]:
    answer = send(api, path, {"name": name, **body}, headers)
    assert answer.status_code == 201, answer.text
    document: dict[str, Any] = answer.json()
    return document


def seen(api: PeopleApi, key: str, project: str = "", path: str = "/me") -> httpx.Response:
    headers = {**bearer(key), **({"Lowtide-Project": project} if project else {})}
    return api.client.get(f"/api/v1{path}", headers=headers)


def where(api: PeopleApi, key: str, project: str = "") -> tuple[str, str]:
    answer = seen(api, key, project)
    assert answer.status_code == 200, answer.text
    return answer.json()["project"], answer.json()["role"]


def names(api: PeopleApi, headers: Headers, project: str, path: str) -> dict[str, Any]:
    answer = api.client.get(f"/api/v1{path}", headers={**headers, "Lowtide-Project": project})
    return {row["name"]: row for row in answer.json()["items"]}


def test_a_limited_key_of_an_admin_opens_its_projects_alone(api: PeopleApi, lea: Invited):
    key = made(api, "/me/keys", lea.headers, "some", projects=["vision", "speech"])
    assert (key["projects"], key["role"]) == (["speech", "vision"], "maintainer")
    # Not in the project of the request, so in the first.
    assert where(api, key["key"]) == ("vision", "maintainer")
    assert where(api, key["key"], "speech") == ("speech", "maintainer")
    foreign, none = (seen(api, key["key"], name) for name in ("admin", "nowhere"))
    assert_refused(foreign, 404, "the key 'some' of Lea opens")
    assert foreign.json()["detail"].replace("admin", "nowhere") == none.json()["detail"]
    for path in ("/projects", "/people"):
        assert seen(api, key["key"], path=path).status_code == 403
    spec = {**SPEC, "project": "admin"}
    assert send(api, "/jobs/check", spec, bearer(key["key"])).status_code == 404
    rules = seen(api, key["key"], path="/projects/admin/rules")
    assert rules.status_code == 404


def test_a_key_tells_the_projects_that_it_names(api: PeopleApi, lea: Invited):
    named = made(api, "/me/keys", lea.headers, "told", projects=["vision", "speech"])
    assert seen(api, named["key"]).json()["projects"] == ["speech", "vision"]
    assert seen(api, lea.key).json()["projects"] is None
    robot = made(api, "/keys", lea.headers, "told-ci", projects=["vision", "speech"])
    assert seen(api, robot["key"], "speech").json()["projects"] == ["speech", "vision"]
    refused = seen(api, named["key"], "admin")
    assert_refused(refused, 404, "The projects of a key never change")


def test_a_limited_key_makes_and_touches_no_wider_one(api: PeopleApi, lea: Invited):
    key = made(api, "/me/keys", lea.headers, "one", projects=["vision"])
    own = bearer(key["key"])
    child = made(api, "/me/keys", own, "child")
    assert child["projects"] == ["vision"]
    assert seen(api, child["key"], "speech").status_code == 404
    assert_refused(
        send(api, "/me/keys", {"name": "x", "projects": ["vision", "speech"]}, own), 404, "speech"
    )
    assert_refused(
        send(api, "/keys", {"name": "x", "projects": ["vision", "speech"]}, own), 404, "speech"
    )
    made(api, "/me/keys", lea.headers, "wide")
    made(api, "/me/keys", lea.headers, "other", projects=["vision", "speech"], role="viewer")
    for name in ("wide", "other"):
        for verb in ("rotate", "revoke"):
            assert send(api, f"/me/keys/{name}/{verb}", {}, own).status_code == 403
    # It does not tell where others work.
    listed = names(api, own, "vision", "/me/keys")
    assert (listed["wide"]["projects"], listed["other"]["projects"]) == (None, ["vision"])
    again = send(api, "/me/keys/one/rotate", {"overlap": "0s"}, own).json()
    assert (again["projects"], where(api, again["key"])[0]) == (["vision"], "vision")
    assert seen(api, again["key"], "speech").status_code == 404


def test_a_limited_key_s_browser_and_login_are_as_limited(api: PeopleApi, lea: Invited):
    key = made(api, "/me/keys", lea.headers, "pages", projects=["vision"])["key"]
    made(api, "/me/keys", lea.headers, "wider", projects=["vision", "speech"])
    made(api, "/me/keys", lea.headers, "apart", projects=["speech"])
    with browser_of(api, key) as browser:
        page = browser.get("/account").text
        assert "Show speech" not in page
        for name, opens in (
            ("pages", "opens only vision"),
            ("wider", "opens vision, and projects that this browser does not"),
            ("apart", "opens only projects that this browser does not"),
        ):
            assert f'{name} <span class="muted">{opens}</span>' in page
        form = {"form_token": hidden_field(page, "form_token"), "project": "speech"}
        assert browser.post("/account/project", data=form).status_code == 404
        assert browser.get("/projects/vision").status_code == 200
        assert browser.get("/projects/speech").status_code == 404
        assert "speech" not in browser.get("/projects").text
        confirmed = confirmed_login(browser)
    wider = api.client.post("/api/v1/login", json={**confirmed, "projects": ["speech"]})
    assert_refused(wider, 409, "There is no project 'speech'")
    login = api.client.post("/api/v1/login", json=confirmed).json()
    assert login["projects"] == ["vision"]
    assert seen(api, login["key"], "speech").status_code == 404


def confirmed_login(browser: httpx.Client | Browser) -> dict[str, Any]:
    """What a command sends for its key, once the browser's person has confirmed it."""
    verifier = secrets.token_urlsafe(32)
    path = f"/login?challenge={challenge_of(verifier)}&machine=x"
    return {"verifier": verifier, "code": confirm_login(browser, path)}


def test_a_login_may_ask_for_some_projects_alone(api: PeopleApi, lea: Invited):
    confirmed = confirmed_login(lea.browser)
    for name in ("nowhere", "admin' --"):
        refused = api.client.post("/api/v1/login", json={**confirmed, "projects": [name]})
        assert_refused(refused, 409, "that Lea is a member of")
    answer = api.client.post("/api/v1/login", json={**confirmed, "projects": ["vision"]})
    assert answer.status_code == 201, answer.text
    login = answer.json()
    # She is an admin; a key that names projects is at most a maintainer's.
    assert (login["projects"], login["role"]) == (["vision"], "maintainer")
    assert (login["project"], where(api, login["key"])[0]) == ("vision", "vision")
    assert seen(api, login["key"], "speech").status_code == 404


def test_what_a_limited_key_may_name(api: PeopleApi, root: Headers, lea: Invited):
    make_project(api.engine, "not-hers")
    for body, status, word in (
        ({"projects": ["not-hers"]}, 422, "not a member of 'not-hers'"),
        ({"projects": ["nowhere"]}, 404, "nowhere"),
        ({"projects": []}, 422, "projects"),
        ({"projects": ["vision"], "role": "admin"}, 422, "whole deployment"),
        ({"projects": ["vision"], "role": "auditor"}, 422, "whole deployment"),
    ):
        refused = send(api, "/me/keys", {"name": "bad", **body}, lea.headers)
        assert_refused(refused, status, word)
    home = made(api, "/me/keys", lea.headers, "home", projects=["speech", "admin"])
    assert where(api, home["key"]) == ("admin", "maintainer")


def test_a_membership_that_ends_drops_out_of_the_list(api: PeopleApi, root: Headers):
    ben = of_three(api, root, "Ben", "submitter")
    key = made(api, "/me/keys", ben.headers, "two", projects=["vision", "speech"])["key"]
    assert where(api, key)[0] == "vision"
    assert "opens only speech, vision</span>" in ben.browser.get("/account").text
    assert send(api, "/members/Ben/remove", {}, root, "vision").is_success
    wait_until(lambda: where(api, key) == ("speech", "maintainer"))
    # Ben is a member of `admin` yet, which the key does not name.
    assert send(api, "/members/Ben/remove", {}, root, "speech").is_success
    wait_until(lambda: seen(api, key).status_code == 401)
    assert "opens none of your projects</span>" in ben.browser.get("/account").text


def test_a_list_that_is_changed_by_hand_holds_within_seconds(api: PeopleApi, lea: Invited):
    key = made(api, "/me/keys", lea.headers, "by-hand", projects=["vision", "speech"])["key"]
    assert where(api, key, "speech")[0] == "speech"
    home = fetch_value(api.engine, select(KEYS.c.project_id).where(KEYS.c.own_name == "by-hand"))
    change_rows(api.engine, KEYS, KEYS.c.own_name == "by-hand", project_ids=[home])
    wait_until(lambda: seen(api, key, "speech").status_code == 404)
    # To the release before, the key is one of its own project: so that is one of the list.
    wrong: tuple[dict[str, Any], ...] = ({"project_ids": []}, {"limit_role": Role.ADMIN})
    for values in wrong:
        with pytest.raises(IntegrityError, match="projects_hold_its_own"):
            change_rows(api.engine, KEYS, KEYS.c.own_name == "by-hand", **values)


def test_a_service_key_works_in_each_of_its_projects(
    api: PeopleApi, root: Headers, lea: Invited, mia: Invited, sam: Invited
):
    both = ["vision", "speech"]
    made(api, "/keys", {**sam.headers}, "ci")
    assert_refused(send(api, "/keys", {"name": "ci", "projects": both}, mia.headers), 404, "speech")
    kim = invited(api, "Kim", "maintainer", {**root, "Lowtide-Project": "vision"})
    token = invitation(api, {**root, "Lowtide-Project": "speech"}, "viewer")
    assert accept_with(kim.browser, token, "unread").status_code == 200
    refused = send(api, "/keys", {"name": "ci", "role": "viewer", "projects": both}, kim.headers)
    assert_refused(refused, 403, "Kim has the role viewer")
    for role in ("admin", "auditor"):
        refused = send(api, "/keys", {"name": "ci", "role": role, "projects": both}, root)
        assert_refused(refused, 422, "whole deployment")
    # Of the first that it names, as the request's project is none of them.
    key = made(api, "/keys", lea.headers, "ci", projects=both)
    assert key["projects"] == ["speech", "vision"]
    assert where(api, key["key"]) == ("vision", "submitter")
    assert where(api, key["key"], "speech") == ("speech", "submitter")
    assert_refused(seen(api, key["key"], "admin"), 404, "that the key 'ci' opens")
    with browser_of(api, key["key"]) as browser:
        assert [browser.get(f"/projects/{one}").status_code for one in both] == [200, 200]
        assert browser.get("/projects/admin").status_code == 404
    job = send(api, "/jobs", {**SPEC, "project": "speech"}, bearer(key["key"]))
    assert job.status_code == 201
    # Each project lists it; the other calls it by its home.
    for path in ("/keys", "/members"):
        assert "ci" in names(api, mia.headers, "vision", path)
        assert {"ci", "vision/ci"} <= names(api, sam.headers, "speech", path).keys()
    assert names(api, mia.headers, "vision", "/keys")["ci"]["projects"] == ["vision"]


def test_who_manages_a_service_key_of_several_projects(
    api: PeopleApi, lea: Invited, mia: Invited, sam: Invited
):
    both = ["vision", "speech"]
    key = made(api, "/keys", lea.headers, "robot", role="viewer", projects=both)["key"]
    # Its secret, or a greater role, would open the other project to either of them.
    for who, name in ((mia, "robot"), (sam, "vision/robot")):
        refused = send(api, f"/members/{name}/role", {"role": "maintainer"}, who.headers)
        assert_refused(refused, 403, "works in several projects")
    assert_refused(send(api, "/keys/robot/rotate", {}, mia.headers), 403, "several projects")
    assert send(api, "/keys/robot/revoke", {}, sam.headers).status_code == 404
    changed = send(api, "/members/robot/role", {"role": "maintainer"}, lea.headers, "vision")
    assert changed.json()["role"] == "maintainer"
    refused = send(api, "/members/robot/role", {"role": "admin"}, lea.headers, "vision")
    assert_refused(refused, 422, "whole deployment")
    rotated = send(api, "/keys/robot/rotate", {"overlap": "0s"}, lea.headers, "vision")
    key = rotated.json()["key"]
    link = send(api, "/invitations", {"role": "viewer"}, bearer(key), "speech").json()["link"]
    # The other project gets rid of it, and it works on at home; what it has sent out ends, too.
    assert where(api, key, "speech")[1] == "maintainer"
    removed = send(api, "/members/vision/robot/remove", {}, sam.headers)
    assert (removed.status_code, removed.json()["name"]) == (200, "vision/robot")
    wait_until(lambda: seen(api, key, "speech").status_code == 404)
    assert accept_with(Browser(api.url), link.partition("#")[2], "Late").status_code == 404
    assert where(api, key) == ("vision", "maintainer")
    assert "vision/robot" not in names(api, sam.headers, "speech", "/keys")
    # Its own project ends it everywhere.
    assert send(api, "/members/robot/remove", {}, mia.headers).status_code == 200
    wait_until(lambda: seen(api, key).status_code == 401)
