"""Every route, page and form, for every role: refused exactly where the table of roles says so.

The routes are read from the app itself, so that a new one fails here until it has a row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Final
from uuid import UUID, uuid4

import httpx
import pytest

from app.api.main import create_app
from app.domain.access.roles import OWN_ROLES_OF, ROLES_OF, Action, Role
from app.storage.schema import tables
from app.web.page_frame import PageRoute
from tests.support.api.people_api import (
    SPEC,
    PeopleApi,
    bearer,
    browser_of,
    hidden_field,
    make_key,
    make_project,
)
from tests.support.servers.table_rows import add_row

WITHOUT_KEY: Final = {
    "/healthz",
    "/readyz",
    "/openapi.json",
    "/sign-in",
    "/sign-out",
    "/sign-in/oidc/{issuer}",
    "/sign-in/oidc/{issuer}/callback",
    "/invitation",
    "/api/v1/login",
}
COMMANDS: Final = {
    ("POST", "/api/v1/jobs/{job}/cancel"),
    ("POST", "/api/v1/jobs/{job}/pause"),
    ("POST", "/api/v1/jobs/{job}/resume"),
    ("POST", "/api/v1/jobs/batch"),
    ("POST", "/api/v1/instances/{instance_id}/interrupt"),
}
SUBMISSIONS: Final = {
    ("POST", "/api/v1/jobs"),
    ("POST", "/api/v1/jobs/check"),
    ("HEAD", "/api/v1/workdirs/{digest}"),
    ("PUT", "/api/v1/workdirs/{digest}"),
}
KEYS: Final = {
    ("GET", "/api/v1/keys"),
    ("POST", "/api/v1/keys"),
    ("POST", "/api/v1/keys/{key}/rotate"),
    ("POST", "/api/v1/keys/{key}/revoke"),
}
MEMBERS: Final = {
    ("GET", "/api/v1/members"),
    ("POST", "/api/v1/members/{member}/role"),
    ("POST", "/api/v1/members/{member}/remove"),
    ("GET", "/api/v1/invitations"),
    ("POST", "/api/v1/invitations"),
    ("POST", "/api/v1/invitations/{invitation}/revoke"),
}
OWN: Final = {
    ("GET", "/api/v1/me/keys"),
    ("POST", "/api/v1/me/keys"),
    ("POST", "/api/v1/me/keys/{key}/rotate"),
    ("POST", "/api/v1/me/keys/{key}/revoke"),
    ("GET", "/api/v1/me/sessions"),
    ("POST", "/api/v1/me/sessions/{session}/end"),
}
RULES: Final = {
    ("PUT", "/api/v1/projects/{project}/rules"),
    ("POST", "/api/v1/projects/apply"),
    ("PUT", "/api/v1/projects/{project}/budget"),
    ("POST", "/api/v1/projects/{project}/freeze"),
    ("POST", "/api/v1/projects/{project}/thaw"),
}
SECRETS: Final = {
    ("PUT", "/api/v1/secrets/{secret}"),
    ("POST", "/api/v1/secrets/{secret}/rotate"),
    ("POST", "/api/v1/secrets/{secret}/remove"),
}
NOTIFICATIONS: Final = {
    ("PUT", "/api/v1/notifications/channels/{channel}"),
    ("POST", "/api/v1/notifications/channels/{channel}/remove"),
    ("POST", "/api/v1/notifications/channels/{channel}/test"),
    ("POST", "/api/v1/notifications/rules"),
    ("POST", "/api/v1/notifications/rules/{rule}/remove"),
    ("GET", "/api/v1/notifications/deliveries"),
    ("GET", "/api/v1/notifications/deliveries/{delivery}"),
    ("POST", "/api/v1/notifications/deliveries/{delivery}/resend"),
}
DEPLOYMENT_READS: Final = {
    ("GET", "/metrics"),
    ("GET", "/api/v1/sweep"),
    ("GET", "/api/v1/projects"),
    ("GET", "/api/v1/audit/refusals"),
    ("GET", "/api/v1/audit/verify"),
    ("GET", "/api/v1/people"),
    ("GET", "/api/v1/limits"),
    ("GET", "/api/v1/budget"),
}
DEPLOYMENT_ORDERS: Final = {
    ("POST", "/api/v1/sweep"),
    ("POST", "/api/v1/destroy"),
    ("PUT", "/api/v1/limits"),
    ("PUT", "/api/v1/budget"),
    ("POST", "/api/v1/freezes"),
    ("POST", "/api/v1/freezes/thaw"),
    ("POST", "/api/v1/projects"),
    ("POST", "/api/v1/projects/{project}/archive"),
    ("POST", "/api/v1/projects/{project}/restore"),
    ("POST", "/api/v1/people/{person}/disable"),
    ("POST", "/api/v1/people/{person}/enable"),
    ("POST", "/api/v1/people/{person}/anonymise"),
    ("GET", "/api/v1/people/{person}/keys"),
    ("POST", "/api/v1/people/{person}/keys/{key}/revoke"),
}
READS: Final = {
    ("GET", "/api/v1/me"),
    ("GET", "/api/v1/freezes"),
    ("GET", "/api/v1/projects/{project}/rules"),
    ("GET", "/api/v1/projects/{project}/limits"),
    ("GET", "/api/v1/projects/{project}/budget"),
    ("GET", "/api/v1/budgets"),
    ("GET", "/api/v1/jobs"),
    ("GET", "/api/v1/jobs/{job}"),
    ("GET", "/api/v1/jobs/{job}/copy"),
    ("GET", "/api/v1/jobs/{job}/attempts"),
    ("GET", "/api/v1/jobs/{job}/events"),
    ("GET", "/api/v1/jobs/{job}/checkpoints"),
    ("GET", "/api/v1/jobs/{job}/checkpoints/{fence}/{step}"),
    ("GET", "/api/v1/jobs/{job}/checkpoints/{fence}/{step}/files/{name}"),
    ("GET", "/api/v1/jobs/{job}/metrics"),
    ("GET", "/api/v1/jobs/{job}/logs"),
    ("GET", "/api/v1/jobs/{job}/cost"),
    ("GET", "/api/v1/jobs/{job}/explanation"),
    ("POST", "/api/v1/estimates"),
    ("GET", "/api/v1/estimates/calibration"),
    ("GET", "/api/v1/costs"),
    ("GET", "/api/v1/costs/verify"),
    ("GET", "/api/v1/instances"),
    ("GET", "/api/v1/notifications/channels"),
    ("GET", "/api/v1/notifications/rules"),
    ("GET", "/api/v1/offers"),
    ("GET", "/api/v1/offers/history"),
}
ACTION_OF: Final = {
    **dict.fromkeys(READS, Action.READ),
    **dict.fromkeys(SUBMISSIONS, Action.SUBMIT),
    **dict.fromkeys(COMMANDS, Action.COMMAND_JOB),
    **dict.fromkeys(KEYS, Action.MANAGE_KEYS),
    **dict.fromkeys(RULES, Action.MANAGE_RULES),
    ("GET", "/api/v1/secrets"): Action.NAME_SECRETS,
    **dict.fromkeys(SECRETS, Action.MANAGE_SECRETS),
    **dict.fromkeys(NOTIFICATIONS, Action.MANAGE_NOTIFICATIONS),
    ("GET", "/api/v1/audit"): Action.READ_AUDIT,
    **dict.fromkeys(MEMBERS, Action.MANAGE_MEMBERS),
    **dict.fromkeys(OWN, Action.MANAGE_OWN),
    **dict.fromkeys(DEPLOYMENT_READS, Action.READ_DEPLOYMENT),
    **dict.fromkeys(DEPLOYMENT_ORDERS, Action.OPERATE_DEPLOYMENT),
}
PAGES: Final = {
    "/": Action.READ,
    "/jobs": Action.READ,
    "/jobs/-/table": Action.READ,
    "/jobs/{job}": Action.READ,
    "/jobs/{job}/live": Action.READ,
    "/jobs/{job}/log": Action.READ,
    "/jobs/{job}/log-tail": Action.READ,
    "/jobs/{job}/saved": Action.READ,
    "/jobs/{job}/checkpoints/{fence}/{step}": Action.READ,
    "/jobs/{job}/checkpoints/{fence}/{step}/files/{name:path}": Action.READ,
    "/jobs/{job}/clone": Action.SUBMIT,
    "/estimates": Action.READ,
    "/projects": Action.READ,
    "/projects/{project}": Action.READ,
    "/projects/{project}/notifications": Action.READ,
    "/account": Action.READ,
    "/login": Action.READ,
    "/audit": Action.READ_AUDIT,
}
FORMS: Final = {
    "/jobs/{job}/cancel": Action.COMMAND_JOB,
    "/jobs/{job}/pause": Action.COMMAND_JOB,
    "/jobs/{job}/resume": Action.COMMAND_JOB,
    "/jobs/-/question": Action.COMMAND_JOB,
    "/jobs/-/command": Action.COMMAND_JOB,
    "/jobs/{job}/clone": Action.SUBMIT,
    "/jobs/{job}/run-again": Action.SUBMIT,
    "/projects/{project}/notifications/{delivery}/resend": Action.MANAGE_NOTIFICATIONS,
    "/account/sessions/{session}/end": Action.MANAGE_OWN,
    "/account/keys/{key}/revoke": Action.MANAGE_OWN,
    "/account/project": Action.MANAGE_OWN,
    "/login": Action.MANAGE_OWN,
}


def routes() -> list[tuple[str, str]]:
    """(method, path) of everything that people's programs may call."""
    found = create_app().openapi()["paths"]
    return sorted(
        (method.upper(), path)
        for path, methods in found.items()
        for method in methods
        if path not in WITHOUT_KEY and not path.startswith("/agent/")
    )


def pages(method: str) -> list[str]:
    """The paths of every page, or of everything that a page posts."""
    routers = [
        one.original_router for one in create_app().routes if hasattr(one, "original_router")
    ]
    return sorted(
        route.path
        for router in routers
        for route in router.routes
        if isinstance(route, PageRoute)
        and method in (route.methods or ())
        and route.path not in WITHOUT_KEY
    )


def may(role: Role, action: Action) -> bool:
    """Whether the role may do it to anything, its own things included."""
    return role in ROLES_OF[action] | OWN_ROLES_OF.get(action, frozenset())


def test_every_route_page_and_form_has_a_row():
    assert set(routes()) == set(ACTION_OF)
    assert set(pages("GET")) == set(PAGES)
    assert set(pages("POST")) == set(FORMS)


@pytest.fixture(scope="module")
def keys(api: PeopleApi) -> dict[Role, str]:
    return {role: make_key(api.engine, api.project_id, f"of-{role}", role) for role in Role}


@pytest.fixture(scope="module")
def foreign(api: PeopleApi) -> dict[Role, str]:
    """Keys of another project."""
    other = make_project(api.engine, "elsewhere")
    return {role: make_key(api.engine, other, f"from-{role}", role) for role in Role}


@pytest.fixture(scope="module")
def job(api: PeopleApi) -> str:
    return str(api.submitted(name="watched")["id"])


def ask(api: PeopleApi, method: str, path: str, key: str, job: str) -> httpx.Response:
    """The route, about the job; what else it needs is not there."""
    filled = path.replace("{job}", job).replace("{instance_id}", str(uuid4()))
    filled = filled.replace("{fence}", "1").replace("{step}", "10").replace("{name}", "x")
    filled = re.sub(r"\{\w+\}", "nothing", filled)
    body: Any = {"notice_seconds": None} if filled.endswith("interrupt") else {}
    sent = {"json": body} if method in ("POST", "PUT") and "workdirs" not in path else {}
    return httpx.request(method, f"{api.url}{filled}", headers=bearer(key), timeout=20, **sent)


@pytest.mark.parametrize(("method", "path"), routes())
def test_a_route_is_for_the_roles_of_its_action(
    api: PeopleApi, keys: dict[Role, str], method: str, path: str
):
    for role, key in keys.items():
        # A job that is not there: nothing is changed, and the role is known before that is.
        answer = ask(api, method, path, key, "nothing-of-that-name")
        refused = answer.status_code == 403
        assert refused is not may(role, ACTION_OF[method, path]), (role, answer.text)
        assert answer.status_code not in (401, 500), answer.text
        if refused and method != "HEAD":
            assert f"has the role {role}," in answer.json()["detail"]


@pytest.mark.parametrize(("method", "path"), [route for route in routes() if "{job}" in route[1]])
def test_another_projects_job_is_as_if_it_were_not_there(
    api: PeopleApi, foreign: dict[Role, str], job: str, method: str, path: str
):
    nowhere = str(uuid4())
    for role, key in foreign.items():
        if not may(role, ACTION_OF[method, path]):
            continue
        there, not_there = (ask(api, method, path, key, one) for one in (job, nowhere))
        assert there.status_code == not_there.status_code == 404, (role, there.text)
        assert there.text.replace(job, nowhere) == not_there.text


@pytest.fixture(scope="module")
def browsers(api: PeopleApi, keys: dict[Role, str]) -> Iterator[dict[Role, httpx.Client]]:
    with ExitStack() as opened:
        yield {role: opened.enter_context(browser_of(api, key)) for role, key in keys.items()}


def look(browser: httpx.Client, path: str, job: str) -> httpx.Response:
    """The page, about the job; what else it needs is not there."""
    filled = path.replace("{job}", job).replace("{fence}", "1").replace("{step}", "10")
    filled = re.sub(r"\{\w+(:path)?\}", "nothing", filled)
    return browser.get(filled, params={"stream": "1/0"})


@pytest.mark.parametrize("path", sorted(PAGES))
def test_a_page_is_for_the_roles_of_its_action(
    browsers: dict[Role, httpx.Client], job: str, path: str
):
    for role, browser in browsers.items():
        answer = look(browser, path, job)
        refused = answer.status_code == 403
        assert refused is not may(role, PAGES[path]), (role, answer.status_code)
        assert answer.status_code < 500
        if refused:
            assert f"has the role {role}," in answer.text


@pytest.mark.parametrize("path", [path for path in sorted(PAGES) if "{job}" in path])
def test_a_page_of_another_projects_job_is_as_if_it_were_not_there(
    api: PeopleApi, foreign: dict[Role, str], job: str, path: str
):
    nowhere = str(uuid4())
    with browser_of(api, foreign[Role.MAINTAINER]) as browser:
        there, not_there = (look(browser, path, one) for one in (job, nowhere))
    assert there.status_code == not_there.status_code == 404, there.text
    assert there.text.replace(job, nowhere) == not_there.text


@pytest.mark.parametrize("path", sorted(FORMS))
def test_a_form_is_for_the_roles_of_its_action(
    api: PeopleApi, keys: dict[Role, str], job: str, path: str
):
    for role, key in keys.items():
        if may(role, FORMS[path]):
            continue  # what it does then is the subject of the pages' own tests
        with browser_of(api, key) as browser:
            token = hidden_field(browser.get("/jobs").text, "form_token")
            form = {"form_token": token, "once": "o" * 20, "action": "cancel", "job": job}
            answer = browser.post(path.replace("{job}", "watched"), data=form)
        assert answer.status_code == 403, (role, answer.text)
        assert f"has the role {role}," in answer.text
    assert api.get("/jobs/watched")["state"] == "queued"


def test_pages_offer_what_the_role_may_do(api: PeopleApi, keys: dict[Role, str], job: str):
    offered = {Role.MAINTAINER: True, Role.SUBMITTER: False, Role.VIEWER: False}
    for role, stops in offered.items():
        with browser_of(api, keys[role]) as browser:
            page, listed = browser.get(f"/jobs/{job}").text, browser.get("/jobs").text
        assert ('id="cancel-button"' in page) is stops
        assert ('id="clone-button"' in page) is (role is not Role.VIEWER)
        assert ("may not stop jobs" in listed) is (role is Role.VIEWER)
        assert ('type="checkbox"' in listed) is (role is not Role.VIEWER)
        assert "What would unblock it" in page
        assert (f"/jobs/{job}/clone" in page) is (role is not Role.VIEWER)


def test_a_submitter_commands_its_own_jobs_and_no_others(
    api: PeopleApi, keys: dict[Role, str], job: str
):
    mine, others = bearer(keys[Role.SUBMITTER]), bearer(keys[Role.MAINTAINER])
    assert api.client.post("/api/v1/jobs", json={**SPEC, "name": "mine"}, headers=mine).is_success
    assert api.client.post("/api/v1/jobs/mine/pause", headers=mine).json()["state"] == "paused"
    refused = api.client.post("/api/v1/jobs/watched/cancel", headers=mine)
    assert refused.status_code == 403
    assert "or is the submitter that submitted it" in refused.json()["detail"]
    body = {"action": "cancel", "ids": ["mine", "watched"]}
    batch = api.client.post("/api/v1/jobs/batch", json=body, headers=mine).json()
    assert [(one["named"], one["outcome"]) for one in batch["items"]] == [
        ("mine", "done"),
        ("watched", "refused"),
    ]
    assert "has the role submitter" in batch["items"][1]["detail"]
    with browser_of(api, keys[Role.SUBMITTER]) as browser:
        token = hidden_field(browser.get("/jobs").text, "form_token")
        for path in ("/jobs/watched/cancel", "/jobs/-/command"):
            form = {"form_token": token, "action": "cancel", "job": job}
            answer = browser.post(path, data=form)
            assert "has the role submitter" in answer.text, (path, answer.status_code)
    assert api.get(f"/jobs/{job}")["state"] == "queued"
    assert api.client.post(
        "/api/v1/jobs", json={**SPEC, "name": "mine-too"}, headers=mine
    ).is_success
    ended = api.client.post("/api/v1/jobs/mine-too/cancel", headers=others)
    assert ended.json()["state"] == "cancelled", "a maintainer commands every job"


def test_a_submitter_interrupts_machines_of_its_own_jobs_alone(
    api: PeopleApi, keys: dict[Role, str], job: str
):
    now, machine = api.parts.runtime.clock.now(), uuid4()
    add_row(
        api.engine, tables.instances, id=machine, job_id=UUID(job), provider="local",
        market="spot", state="requested", origin="launched", requested_at=now, updated_at=now,
        billing_speed=1, suspect=False, terminate_calls=0,
    )  # fmt: skip
    path = f"/api/v1/instances/{machine}/interrupt"
    for role, status in ((Role.SUBMITTER, 403), (Role.MAINTAINER, 409)):
        answer = api.client.post(path, json={}, headers=bearer(keys[role]))
        assert answer.status_code == status, (role, answer.text)
