"""The page of what people did over plain http: filters, parts, empty states, and who sees it."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest

from app.domain.access.roles import Role
from app.storage.audit.audit_reports import WHO_MAX
from app.storage.audit.audit_repository import RefusedAttempts
from app.web import audit_page
from tests.support.api.people_api import PeopleApi, bearer, browser_of, make_key, make_project

_TIMES = re.compile(r'<td class="name number">')


@pytest.fixture(scope="module")
def browsers(api: PeopleApi) -> Iterator[dict[Role, httpx.Client]]:
    """Signed in, one for each role."""
    keys = {role: make_key(api.engine, api.project_id, f"of-{role}", role) for role in Role}
    with ExitStack() as stack:
        yield {role: stack.enter_context(browser_of(api, key)) for role, key in keys.items()}


def text_of(browser: httpx.Client, path: str = "/audit", status: int = 200) -> str:
    answer = browser.get(path)
    assert answer.status_code == status, answer.text
    return html.unescape(answer.text)


def test_the_page_shows_who_did_what(
    api: PeopleApi, browsers: dict[Role, httpx.Client], monkeypatch: pytest.MonkeyPatch
):
    other = make_key(api.engine, make_project(api.engine, "elsewhere"), "far", Role.SUBMITTER)
    spec = {"trainer": {"model": "mlp", "data": "digits", "steps": 9}}
    for key, name in ((api.key, "near-job"), (other, "far-job")):
        body = {**spec, "name": name}
        assert api.client.post("/api/v1/jobs", json=body, headers=bearer(key)).is_success
    own, everything = (text_of(browsers[role]) for role in (Role.MAINTAINER, Role.AUDITOR))
    assert "near-job" in own
    assert "far-job" not in own
    assert 'name="project"' not in own
    assert "near-job" in everything
    assert "far-job" in everything
    assert "not sealed yet" in everything
    assert 'href="/audit"' in text_of(browsers[Role.MAINTAINER], "/jobs")
    narrow = text_of(browsers[Role.ADMIN], "/audit?project=elsewhere&action=job&who=far")
    assert "far-job" in narrow
    assert "near-job" not in narrow
    assert "Nothing matches" in text_of(browsers[Role.ADMIN], "/audit?who=nobody")
    assert "Nothing matches" in text_of(browsers[Role.ADMIN], "/audit?day=2020-01-01")

    monkeypatch.setattr(audit_page, "ROWS_MAX", 2)
    pages, path = 0, "/audit"
    rows = 0
    while path:
        page = text_of(browsers[Role.AUDITOR], path)
        pages, rows = pages + 1, rows + len(_TIMES.findall(page))
        older = re.search(r'<a href="([^"]+)" rel="next">Older', page)
        path = "" if older is None else older[1]
        assert pages < 20
    assert rows >= 2 + len(Role)
    assert pages == -(-rows // 2)


def test_who_may_not_read_it_gets_no_link_and_no_page(browsers: dict[Role, httpx.Client]):
    for role in (Role.VIEWER, Role.SUBMITTER):
        assert 'href="/audit"' not in text_of(browsers[role], "/jobs")
        refused = text_of(browsers[role], status=403)
        assert f"has the role {role}, which may not read the audit" in refused
    assert "There is no project" in text_of(
        browsers[Role.MAINTAINER], "/audit?project=elsewhere", 404
    )


@pytest.mark.parametrize(
    "query", ["day=soon", "day=9999-12-31", "action=fly", "before=7", f"who={'x' * (WHO_MAX + 1)}"]
)
def test_a_bad_address_is_explained(browsers: dict[Role, httpx.Client], query: str):
    assert "<h1" in text_of(browsers[Role.ADMIN], f"/audit?{query}", 422)


def test_names_are_text(browsers: dict[Role, httpx.Client]):
    page = browsers[Role.ADMIN].get("/audit?who=<script>alert(1)</script>").text
    assert "<script>alert" not in page


def test_refused_attempts_are_for_those_who_see_all(
    api: PeopleApi, browsers: dict[Role, httpx.Client]
):
    with api.parts.runtime.begin() as uow:
        minute = uow.now.replace(second=0, microsecond=0)
        uow.audit.count_refusals(
            [
                RefusedAttempts(minute, "203.0.113.9", "lt_abcd", None, "GET /x", attempts)
                for attempts in (7, 2)
            ],
            uow.now,
        )
    page = text_of(browsers[Role.AUDITOR])
    assert "Refused attempts" in page
    assert "203.0.113.9" in page
    assert ">9<" in page
    assert "Refused attempts" not in text_of(browsers[Role.MAINTAINER])
