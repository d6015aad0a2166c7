"""A person with one role at home and another elsewhere: what a request may do in which project."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from sqlalchemy import select

from app.api.audit import audit_routes
from app.domain.access.session_rules import PER_ACCOUNT
from app.domain.deployment.credentials import digest
from app.orchestration.access import while_allowed
from app.storage.access.key_repository import KeyRepository, ProjectRow
from app.storage.audit.audit_reports import AuditRow
from app.storage.jobs.log_repository import LogStream
from app.storage.schema import tables
from app.web.job import downloads
from tests.support.api.agent_api import wait_until
from tests.support.api.invited_people import (
    Browser,
    Invited,
    accept_with,
    admin_headers,
    invitation,
    invited,
)
from tests.support.api.people_api import (
    SPEC,
    PeopleApi,
    browser_of,
    hidden_field,
    make_project,
    post,
)
from tests.support.api.refusals import assert_refused
from tests.support.servers.table_rows import add_row, fetch_value

JOBS = tables.jobs
SPEC_YAML = "trainer:\n  model: mlp\n  data: digits\n  steps: 100\n"


@pytest.fixture(scope="module")
def there(api: PeopleApi) -> dict[str, str]:
    """Headers of an admin in the project `there`."""
    make_project(api.engine, "there")
    return {**admin_headers(api, "root"), "Lowtide-Project": "there"}


@pytest.fixture(scope="module")
def watcher(api: PeopleApi, there: dict[str, str]) -> Invited:
    """Submitter at home, viewer there."""
    return of_two(api, there, "Watcher", "submitter", "viewer")


@pytest.fixture(scope="module")
def keeper(api: PeopleApi, there: dict[str, str]) -> Invited:
    """Viewer at home, maintainer there."""
    return of_two(api, there, "Keeper", "viewer", "maintainer")


def of_two(api: PeopleApi, there: dict[str, str], name: str, home: str, role: str) -> Invited:
    person = invited(api, name, home)
    answer = accept_with(person.browser, invitation(api, there, role), "unread")
    assert answer.status_code == 200, answer.text
    return person


def send(api: PeopleApi, path: str, body: Any, who: Invited, **headers: str) -> httpx.Response:
    return post(api, path, body, **who.headers, **headers)


def forgotten(api: PeopleApi) -> None:
    """Let the next request look its key up."""
    api.parts.keys._remembered.clear()


@pytest.mark.parametrize("path", ["/jobs", "/jobs/check"])
def test_a_spec_is_submitted_by_the_role_in_the_project_that_it_names(
    api: PeopleApi, watcher: Invited, keeper: Invited, path: str
):
    spec = {**SPEC, "project": "there"}
    before = api.count(JOBS)
    assert_refused(send(api, path, spec, watcher), 403, "Watcher has the role viewer")
    assert_refused(send(api, path, SPEC, keeper), 403, "Keeper has the role viewer")
    assert api.count(JOBS) == before
    taken = send(api, path, spec, keeper)
    assert taken.is_success, taken.text
    assert send(api, path, SPEC, watcher).is_success
    # What is wrong in a spec is told before the role is known, and a role in no project at once.
    assert_refused(send(api, path, {**spec, "nodes": -1}, keeper), 422, "nodes")
    body = {"name": f"reads{path.replace('/', '-')}", "role": "viewer"}
    reads = send(api, "/me/keys", body, keeper).json()["key"]
    limited = Invited("Keeper", keeper.browser, reads, "")
    assert_refused(send(api, path, {}, limited), 403, "of Keeper has the limit viewer")


def test_a_form_submits_by_the_role_in_the_project_that_the_pages_show(
    api: PeopleApi, watcher: Invited
):
    made = send(api, "/jobs", {**SPEC, "name": "to-copy"}, watcher)
    assert made.is_success
    form = {"once": "o" * 20, "spec": f"project: there\n{SPEC_YAML}", "action": "submit"}
    page = watcher.browser.get("/jobs/to-copy/clone").text
    form["form_token"] = hidden_field(page, "form_token")
    answer = watcher.browser.post("/jobs/to-copy/clone", form)
    assert (answer.status_code, "this is the project" in answer.text) == (422, True)


def test_rules_are_changed_by_the_role_in_the_project_that_is_named(
    api: PeopleApi, watcher: Invited, keeper: Invited
):
    def put(who: Invited, project: str) -> httpx.Response:
        path, body = f"/api/v1/projects/{project}/rules", {"rules": {"markets": ["spot"]}}
        return api.client.put(path, json=body, headers=who.headers)

    assert_refused(put(keeper, "admin"), 403, "Keeper has the role viewer")
    assert_refused(put(watcher, "there"), 403, "Watcher has the role viewer")
    assert put(keeper, "there").json()["rules"] == {"markets": ["spot"]}
    same: dict[str, Any] = {"projects": {"there": {"rules": {"markets": ["spot"]}}}}
    assert send(api, "/projects/apply", same, keeper).status_code == 200
    other = {"projects": {"admin": {"rules": {"markets": ["spot"]}}}}
    assert_refused(send(api, "/projects/apply", other, keeper), 403, "Keeper has the role viewer")
    wanted = {"projects": {"admin": {"rules": {"markets": ["spot"]}}}}
    assert_refused(send(api, "/projects/apply", wanted, keeper), 403, "Keeper has the role viewer")


def test_the_audit_is_read_by_the_role_in_the_project_that_is_named(
    api: PeopleApi, watcher: Invited, keeper: Invited
):
    def read(who: Invited, path: str) -> httpx.Response:
        return api.client.get(f"/api/v1{path}", headers=who.headers)

    rows = read(keeper, "/audit?project=there").json()["items"]
    assert {row["project"] for row in rows} == {"there"}
    assert_refused(read(keeper, "/audit"), 403, "Keeper has the role viewer")
    assert_refused(read(watcher, "/audit?project=there"), 403, "Watcher has the role viewer")
    for name in ("closed", "absent"):
        assert_refused(read(keeper, f"/audit?project={name}"), 404, f"no project '{name}'")
    page = keeper.browser.get("/audit?project=there")
    assert page.status_code == 200
    assert '<input type="hidden" name="project" value="there">' in page.text
    assert keeper.browser.get("/audit").status_code == 403
    assert watcher.browser.get("/audit?project=there").status_code == 403
    assert keeper.browser.get("/audit?project=absent").status_code == 404


def test_nothing_is_counted_of_a_project_that_does_not_open(
    api: PeopleApi, keeper: Invited, monkeypatch: pytest.MonkeyPatch
):
    """What takes as long as the project is large would tell that it is there."""
    make_project(api.engine, "unseen")

    def projects(*_: Any) -> list[ProjectRow]:
        raise AssertionError("jobs, keys and members were counted")

    monkeypatch.setattr(KeyRepository, "projects", projects)
    for name in ("unseen", "absent"):
        for path in (f"/projects/{name}", f"/audit?project={name}"):
            assert keeper.browser.get(path).status_code == 404, path
        wanted: dict[str, Any] = {"projects": {name: {"rules": {}}}}
        assert_refused(send(api, "/projects/apply", wanted, keeper), 404, f"no project '{name}'")


def test_an_auditor_of_one_project_is_one_everywhere(api: PeopleApi, there: dict[str, str]):
    person = of_two(api, there, "Auditing", "submitter", "auditor")
    for path in ("/audit", "/projects", "/people"):
        answer = api.client.get(f"/api/v1{path}", headers=person.headers)
        assert answer.status_code == 200, (path, answer.text)
    assert send(api, "/jobs", SPEC, person).status_code == 201, "still a submitter at home"
    assert_refused(send(api, "/jobs", {**SPEC, "project": "there"}, person), 403, "auditor")
    body = {"name": "limited", "role": "submitter"}
    limited = send(api, "/me/keys", body, person).json()["key"]
    headers = Invited("Auditing", person.browser, limited, "").headers
    assert api.client.get("/api/v1/projects", headers=headers).status_code == 403


def test_a_limited_key_of_an_admin_opens_what_the_admin_is_a_member_of(
    api: PeopleApi, there: dict[str, str]
):
    make_project(api.engine, "closed")
    root = {name: value for name, value in there.items() if name != "Lowtide-Project"}
    chief = invited(api, "Chief", "admin", root)
    body = {"name": "reads", "role": "viewer"}
    limited = {"Authorization": f"Bearer {send(api, '/me/keys', body, chief).json()['key']}"}
    for headers, status in ((chief.headers, 200), (limited, 404)):
        named = {**headers, "Lowtide-Project": "closed"}
        assert api.client.get("/api/v1/jobs", headers=named).status_code == status
    assert api.client.get("/api/v1/jobs", headers=limited).status_code == 200


def test_a_key_that_lost_its_project_changes_another_only_by_name(
    api: PeopleApi, there: dict[str, str]
):
    person = of_two(api, there, "Moved", "maintainer", "maintainer")
    chief = of_two(api, there, "Wide", "maintainer", "admin")
    for name in ("Moved", "Wide"):
        root = {"Authorization": there["Authorization"]}
        answer = api.client.post(f"/api/v1/members/{name}/remove", json={}, headers=root)
        assert answer.status_code == 200, answer.text
    forgotten(api)
    mine = api.client.get("/api/v1/me", headers=person.headers).json()
    assert (mine["project"], mine["role"]) == ("there", "maintainer")
    refused = send(api, "/jobs", {**SPEC, "name": "astray"}, person)
    assert_refused(refused, 403, "as 'there': use --project")
    assert_refused(send(api, "/jobs/batch", {"action": "cancel", "ids": ["x"]}, person), 403)
    assert send(api, "/jobs", {**SPEC, "name": "by-spec", "project": "there"}, person).is_success
    spec = {**SPEC, "name": "by-header"}
    assert send(api, "/jobs", spec, person, Lowtide_Project="there").is_success
    page = person.browser.get("/account").text
    assert "clone-button" not in person.browser.get("/jobs/by-spec").text
    form = {"form_token": hidden_field(page, "form_token"), "project": "there"}
    assert "Show there" in page
    assert person.browser.post("/account/project", form).status_code == 303
    assert "clone-button" in person.browser.get("/jobs/by-spec").text
    # An admin elsewhere stays where its key was made: that project opens all the same.
    mine = api.client.get("/api/v1/me", headers=chief.headers).json()
    assert (mine["project"], mine["role"]) == ("admin", "admin")
    assert send(api, "/jobs", {**SPEC, "name": "at-home"}, chief).json()["project"] == "admin"


def test_the_audit_has_the_key_with_which_an_invitation_was_accepted(
    api: PeopleApi, there: dict[str, str]
):
    person = invited(api, "Signed in")
    with browser_of(api, person.key) as browser:
        page = browser.get("/invitation").text
        assert "gives that person a key" in page, "one that was made again is for somebody else"
        form = {"token": invitation(api, there), "form_token": hidden_field(page, "form_token")}
        assert browser.post("/invitation", data=form).status_code == 200
    query = {"who": "signed in", "project": "there", "action": "invitation.accept"}
    [row] = api.client.get("/api/v1/audit", params=query, headers=there).json()["items"]
    which = tables.api_keys.c.key_hash == digest(person.key)
    assert row["key_id"] == str(fetch_value(api.engine, select(tables.api_keys.c.id).where(which)))
    # Of service keys, the name in one project, or in all of them.
    for who, found in (("there/root", 0), ("admin/root", 1), ("root", 1), ("admin/signed in", 0)):
        query = {"who": who, "project": "there", "limit": "1"}
        rows = api.client.get("/api/v1/audit", params=query, headers=there).json()["items"]
        assert len(rows) == found, who


def test_a_maintainer_takes_back_no_invitation_that_an_admin_made_again(
    api: PeopleApi, there: dict[str, str], keeper: Invited
):
    again = api.client.post("/api/v1/invitations", json={"person": "Keeper"}, headers=there).json()
    path = f"/invitations/{again['id']}/revoke"
    assert_refused(send(api, path, {}, keeper, Lowtide_Project="there"), 403, "role admin")
    assert api.client.post(f"/api/v1{path}", json={}, headers=there).is_success


@pytest.mark.parametrize(("form", "role"), [("csv", "viewer"), ("jsonl", "auditor")])
def test_an_export_of_the_audit_ends_with_the_role_of_its_reader(
    api: PeopleApi, there: dict[str, str], monkeypatch: pytest.MonkeyPatch, form: str, role: str
):
    reader = of_two(api, there, f"Exporting {form}", "maintainer", role)
    # Who is an auditor no more may still read the audit at home, and not that of all projects.
    where = there if role == "auditor" else {"Authorization": there["Authorization"]}
    whole = audit_routes._parts

    def removed_between(*asked: Any) -> Iterator[list[AuditRow]]:
        [rows] = whole(*asked)
        yield rows[:1]
        path = f"{api.url}/api/v1/members/{reader.name}/role"
        lowered = httpx.post(path, json={"role": "viewer"}, headers=where, timeout=20)
        assert lowered.status_code == 200, lowered.text
        forgotten(api)
        yield rows[1:]

    path = f"{api.url}/api/v1/audit?format={form}"
    assert httpx.get(path, headers=reader.headers, timeout=20).is_success
    monkeypatch.setattr(while_allowed, "ASKED_EVERY", timedelta(0))
    monkeypatch.setattr(audit_routes, "_parts", removed_between)
    with pytest.raises(httpx.RemoteProtocolError):
        httpx.get(path, headers=reader.headers, timeout=20)


def test_a_log_ends_with_the_session_of_its_reader(
    api: PeopleApi, there: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    reader = of_two(api, there, "Reading", "submitter", "viewer")
    job = send(api, "/jobs", {**SPEC, "name": "told"}, reader).json()["id"]
    stream = LogStream(UUID(job), "1/0/stdout", uuid4(), 9, api.parts.runtime.clock.now())
    monkeypatch.setattr(downloads, "list_logs", lambda *_: [stream])
    monkeypatch.setattr(while_allowed, "ASKED_EVERY", timedelta(0))

    def ended_between(*_: Any) -> Iterator[bytes]:
        yield b"first"
        root = {"Authorization": there["Authorization"]}
        path = f"{api.url}/api/v1/members/Reading/remove"
        assert httpx.post(path, json={}, headers=root, timeout=20).status_code == 200
        yield b"next"

    monkeypatch.setattr(downloads, "_pieces", ended_between)
    with pytest.raises(httpx.RemoteProtocolError):
        reader.browser.get(f"/jobs/{job}/log?stream={stream.stream}")


def test_a_log_ends_when_the_pages_show_another_project(
    api: PeopleApi, there: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    reader = of_two(api, there, "Turning", "submitter", "submitter")
    for project in ("admin", "there"):
        spec = {**SPEC, "name": "twice-told", "project": project}
        assert send(api, "/jobs", spec, reader).status_code == 201
    stream = LogStream(uuid4(), "1/0/stdout", uuid4(), 9, api.parts.runtime.clock.now())
    monkeypatch.setattr(downloads, "list_logs", lambda *_: [stream])
    monkeypatch.setattr(while_allowed, "ASKED_EVERY", timedelta(0))
    form = {"form_token": hidden_field(reader.browser.get("/account").text, "form_token")}

    def turned_between(*_: Any) -> Iterator[bytes]:
        yield b"first"
        tab = Browser(api.url)
        tab.cookies = reader.browser.cookies
        assert tab.post("/account/project", {**form, "project": "there"}).status_code == 303
        yield b"next"

    monkeypatch.setattr(downloads, "_pieces", turned_between)
    with pytest.raises(httpx.RemoteProtocolError):
        reader.browser.get(f"/jobs/twice-told/log?stream={stream.stream}")


def test_wrong_tokens_and_codes_and_what_is_too_often_are_counted_as_refusals(
    api: PeopleApi, there: dict[str, str], watcher: Invited
):
    browser = Browser(api.url)
    assert accept_with(browser, "forged", "x").status_code == 404
    body = {"verifier": "v" * 43, "code": "x"}
    assert api.client.post("/api/v1/login", json=body).status_code == 404
    add_row(
        api.engine, tables.sign_in_attempts, subject="account:lt_full",
        began_at=api.parts.runtime.clock.now(), count=PER_ACCOUNT.failures,
    )  # fmt: skip
    form = {"key": f"lt_full{'x' * 39}", "form_token": ""}
    form["form_token"] = hidden_field(browser.get("/sign-in").text, "form_token")
    assert browser.post("/sign-in", form).status_code == 429
    # Of a person's session, which has no key, the person is counted.
    assert watcher.browser.get("/audit?project=there").status_code == 403
    wanted = {
        ("POST /invitation", ""),
        ("POST /api/v1/login", api.key[:7]),
        ("POST /sign-in", "lt_full"),
        ("GET /audit", "person"),
    }

    def seen() -> set[tuple[str, str]]:
        answer = api.client.get("/api/v1/audit/refusals?limit=1000", headers=there)
        rows = answer.json()["items"]
        return {(row["action"], row["key_prefix"].partition(":")[0]) for row in rows}

    wait_until(lambda: wanted <= seen(), seconds=20)
