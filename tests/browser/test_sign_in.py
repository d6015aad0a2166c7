"""Signing in: a key by form, a cookie that names it, tokens on every form, strict headers."""

from __future__ import annotations

import re

import httpx
import pytest
from playwright.sync_api import expect

from app.cli.access.browser_login import CodeListener
from app.domain.access.login_challenge import challenge_of, check_letters
from app.web.session import COOKIE
from tests.browser.conftest import Site
from tests.support.api.invited_people import invitation
from tests.support.api.people_api import revoke_key
from tests.support.pages.browser import Visit

UNKNOWN_KEY = "lt_" + "x" * 43


def test_a_visitor_signs_in_and_lands_where_he_wanted_to_go(look: Visit, site: Site):
    site.story.submit()
    look.go("/jobs/digits")
    expect(look.page).to_have_url(re.compile(r"/sign-in\?next=/jobs/digits$"))
    expect(look.page.get_by_label("API key")).to_be_focused()
    look.sign_in(f"  {site.key} ")
    expect(look.page).to_have_url(re.compile("/jobs/digits$"))
    expect(look.page.get_by_role("heading", level=1)).to_have_text("digits")

    [cookie] = look.context.cookies()
    assert cookie["name"] == COOKIE
    assert cookie["httpOnly"]
    assert cookie["sameSite"] == "Lax"
    assert site.key not in cookie["value"]


@pytest.mark.parametrize(
    "key", [UNKNOWN_KEY, pytest.param("open sesame", marks=pytest.mark.full), "lt_ä"]
)
def test_a_wrong_key_is_refused_in_a_sentence(look: Visit, key: str):
    look.sign_in(key)
    expect(look.page.get_by_role("alert")).to_contain_text(
        "unknown, has expired or has been revoked"
    )
    look.go("/jobs")
    expect(look.page).to_have_url(re.compile("/sign-in"))


def test_a_revoked_key_ends_the_session_of_an_open_page(look: Visit, site: Site):
    look.signed_in(site.key, "/jobs")
    revoke_key(site.api.engine, site.key)
    # The list looks again by itself, and that look leads to the sign-in.
    expect(look.page).to_have_url(re.compile(r"/sign-in\?next=/jobs$"))


def test_signing_out_ends_the_session(look: Visit, site: Site):
    look.signed_in(site.key, "/jobs")
    look.page.get_by_role("button", name="Sign out").click()
    expect(look.page).to_have_url(re.compile("/sign-in$"))
    look.go("/jobs")
    expect(look.page).to_have_url(re.compile("/sign-in"))


def test_signing_in_never_leads_to_another_site(look: Visit, site: Site):
    for elsewhere in ("//evil.example", "/\\evil.example", "https://evil.example"):
        look.page.goto("about:blank")  # where no page asks again for what it may not have any more
        look.context.clear_cookies()
        look.page.goto(f"{look.url}/sign-in?next={elsewhere}")
        look.sign_in(site.key)
        expect(look.page).to_have_url(f"{look.url}/jobs")


def test_forms_from_elsewhere_are_refused(look: Visit, site: Site):
    job_id = site.story.submit()
    look.signed_in(site.key, "/jobs")
    session = {cookie["name"]: cookie["value"] for cookie in look.context.cookies()}
    with httpx.Client(base_url=site.api.url, cookies=session, timeout=60) as browser_alike:
        for path, fields in (
            ("/sign-in", {"key": site.key}),
            ("/sign-out", {}),
            *((f"/jobs/{job_id}/{verb}", {}) for verb in ("cancel", "pause", "resume")),
        ):
            for token in ({}, {"form_token": "0" * 64}):
                answer = browser_alike.post(path, data={**fields, **token})
                assert answer.status_code == 403, path
    assert site.story.state(job_id) == "queued"


def test_a_cookie_that_we_did_not_sign_is_nobody(site: Site):
    for forged in ("", "e30.x.y", f'{{"nonce": "n", "key": "{site.api.project_id}"}}'):
        cookies = {COOKIE: forged}
        answer = httpx.get(f"{site.api.url}/jobs", cookies=cookies, timeout=60)
        assert answer.status_code == 303
        assert answer.headers["location"] == "/sign-in?next=/jobs"


def test_every_page_has_strict_headers(site: Site):
    for path in ("/sign-in", "/jobs", "/", "/nothing-here"):
        answer = httpx.get(f"{site.api.url}{path}", headers={"accept": "text/html"}, timeout=60)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'self'" in policy, path
        assert "frame-ancestors 'none'" in policy, path
        assert "unsafe" not in policy, path
        assert answer.headers["x-content-type-options"] == "nosniff", path
        assert answer.headers["referrer-policy"] == "no-referrer", path
        assert answer.headers["cache-control"] == "no-store", path


def test_the_cookie_is_for_https_alone_where_there_is_https(site: Site):
    behind_tls = {"x-forwarded-proto": "https"}
    answer = httpx.get(f"{site.api.url}/sign-in", headers=behind_tls, timeout=60)
    assert "Secure" in answer.headers["set-cookie"]
    plain = httpx.get(f"{site.api.url}/sign-in", timeout=60)
    assert "Secure" not in plain.headers["set-cookie"]


def test_an_invitation_is_accepted_by_its_link_alone(look: Visit, site: Site):
    token = invitation(site.api)
    look.go(f"/invitation#{token}")
    expect(look.page).to_have_url(f"{look.url}/invitation")
    look.page.get_by_label("Your name").fill("Léa 王")
    look.page.get_by_role("button", name="Accept").click()
    expect(look.page.get_by_role("heading", level=1)).to_have_text("Welcome, Léa 王")
    expect(look.page.locator("#key")).to_have_text(re.compile(r"^lt_[\w-]{43}$"))
    look.page.get_by_role("link", name="admin · Léa 王").click()
    expect(look.page.get_by_role("cell", name="(this one)")).to_have_count(1)
    assert look.overflow_px() == 0
    look.page.get_by_role("button", name="Sign out the browser").click()
    expect(look.page).to_have_url(re.compile("/sign-in"))


def test_a_confirmed_login_leads_back_to_the_terminal(look: Visit, site: Site):
    """A form may not end at another address, by a redirect either: the page goes on by itself."""
    look.go(f"/invitation#{invitation(site.api)}")
    look.page.get_by_label("Your name").fill("Mika")
    look.page.get_by_role("button", name="Accept").click()
    with CodeListener() as listener:
        challenge = challenge_of("v" * 43)
        look.go(f"/login?challenge={challenge}&machine=my%20laptop&port={listener.port}")
        expect(look.page.get_by_text(check_letters(challenge))).to_be_visible()
        look.page.get_by_role("button", name="Sign it in").click()
        expect(look.page.get_by_text("You can close this page")).to_be_visible()
        code = next(iter(listener.codes()))
    body = {"verifier": "v" * 43, "code": code}
    answer = site.api.client.post("/api/v1/login", json=body)
    assert answer.json()["person"] == "Mika"


def test_what_is_no_page_for_a_program_stays_a_problem_document(site: Site):
    answer = site.api.client.get("/api/v1/nothing")
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
