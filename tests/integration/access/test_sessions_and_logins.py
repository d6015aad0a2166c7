"""Sessions that their owner lists and ends, limits on attempts, and confirmed logins."""

from __future__ import annotations

import secrets
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from sqlalchemy import select

from app.domain.access.login_challenge import challenge_of
from app.domain.access.roles import Role
from app.domain.access.session_rules import PER_ACCOUNT, PER_ADDRESS
from app.domain.audit.audit_action import AuditAction
from app.storage.schema import tables
from tests.support.api.invited_people import (
    USER_AGENT,
    Browser,
    Invited,
    accept_with,
    confirmed,
    invitation,
    invited,
    redeem,
)
from tests.support.api.people_api import (
    PeopleApi,
    bearer,
    hidden_field,
    make_key,
    make_project,
)
from tests.support.api.refusals import assert_refused
from tests.support.servers.table_rows import add_row, change_rows, fetch, fetch_value, rows_of

SESSIONS, LOGINS, ATTEMPTS = tables.sessions, tables.logins, tables.sign_in_attempts
HERE = "address:127.0.0.1"


@pytest.fixture(scope="module")
def lea(api: PeopleApi) -> Invited:
    return invited(api, "Lea")


@pytest.fixture(autouse=True)
def no_attempts(api: PeopleApi) -> None:
    with api.engine.begin() as connection:
        connection.execute(ATTEMPTS.delete())


def sign_in(browser: Browser, key: str) -> httpx.Response:
    token = hidden_field(browser.get("/sign-in").text, "form_token")
    return browser.post("/sign-in", {"key": key, "form_token": token})


def my_sessions(api: PeopleApi, person: Invited) -> list[dict[str, Any]]:
    answer = api.client.get("/api/v1/me/sessions", headers=person.headers)
    found: list[dict[str, Any]] = answer.json()["items"]
    return found


def test_an_owner_sees_its_sessions_and_ends_each(api: PeopleApi):
    ann, other = invited(api, "Ann"), invited(api, "Not Ann")
    phone = Browser(api.url)
    assert sign_in(phone, ann.key).status_code == 303
    newest, first = my_sessions(api, ann)
    assert (newest["browser"], newest["address"]) == (USER_AGENT, "127.0.0.1")
    assert first["created_at"] <= newest["created_at"] < newest["expires_at"]
    page = ann.browser.get("/account").text
    assert page.count("(this one)") == 1
    sent = "Mozilla/5.0 (X11; Linux x86_64) Firefox/128.0 &#34;&gt;&lt;b&gt;"
    assert page.count(f'<span title="{sent}">Firefox on Linux</span>') == 2
    path = f"/api/v1/me/sessions/{newest['id']}/end"
    refused = api.client.post(path, json={}, headers=other.headers)
    assert_refused(refused, 404, "Not Ann has no session")
    assert api.client.post(path, json={}, headers=ann.headers).status_code == 204
    assert phone.get("/jobs").status_code == 303
    assert ann.browser.get("/jobs").status_code == 200
    assert api.client.post(path, json={}, headers=ann.headers).status_code == 404
    # On the page, with its token alone.
    form = {"form_token": "0" * 64}
    assert ann.browser.post(f"/account/sessions/{first['id']}/end", form).status_code == 403
    form = {"form_token": hidden_field(page, "form_token")}
    assert ann.browser.post(f"/account/sessions/{first['id']}/end", form).status_code == 303
    assert ann.browser.get("/jobs").status_code == 303
    assert my_sessions(api, ann) == []


def test_a_session_ends_a_day_after_the_last_request(api: PeopleApi, lea: Invited):
    idle = Browser(api.url)
    assert sign_in(idle, lea.key).status_code == 303
    newest = select(SESSIONS.c.id_hash).order_by(SESSIONS.c.created_at.desc()).limit(1)
    which = SESSIONS.c.id_hash == fetch_value(api.engine, newest)
    now = api.parts.runtime.clock.now()
    change_rows(api.engine, SESSIONS, which, last_seen_at=now - timedelta(hours=23))
    assert idle.get("/jobs").status_code == 200
    seen = fetch_value(api.engine, select(SESSIONS.c.last_seen_at).where(which))
    assert seen >= now, "that it was seen is written"
    change_rows(api.engine, SESSIONS, which, last_seen_at=now - timedelta(hours=25))
    assert idle.get("/jobs").status_code == 303


def counted(api: PeopleApi, subject: str) -> int:
    found = fetch(api.engine, select(ATTEMPTS.c.count).where(ATTEMPTS.c.subject == subject))
    return found[0].count if found else 0


def test_too_many_failures_from_an_address_close_what_failed(api: PeopleApi, lea: Invited):
    now = api.parts.runtime.clock.now()
    add_row(api.engine, ATTEMPTS, subject=HERE, began_at=now, count=PER_ADDRESS.failures - 1)
    browser = Browser(api.url)
    assert sign_in(browser, f"lt_{'x' * 43}").status_code == 401
    change_rows(
        api.engine, ATTEMPTS, ATTEMPTS.c.subject == HERE, began_at=now - timedelta(minutes=5)
    )
    refused = sign_in(browser, lea.key)
    assert (refused.status_code, "wait 10m" in refused.text) == (429, True)
    assert 560 <= int(refused.headers["Retry-After"]) <= 600
    assert counted(api, HERE) == PER_ADDRESS.failures, "who goes on trying writes nothing"
    # Each has counts of its own: others behind this address still accept and redeem.
    token = hidden_field(browser.get("/invitation").text, "form_token")
    form = {"form_token": token, "token": "x", "name": "x"}
    assert browser.post("/invitation", form).status_code == 404
    body = {"verifier": "v" * 43, "code": "x"}
    assert_refused(api.client.post("/api/v1/login", json=body), 404, "not confirmed")
    for kind in ("invitation", "login"):
        subject = ATTEMPTS.c.subject == f"{kind}:127.0.0.1"
        change_rows(api.engine, ATTEMPTS, subject, count=PER_ADDRESS.failures)
    assert browser.post("/invitation", form).status_code == 429
    answer = api.client.post("/api/v1/login", json=body)
    assert_refused(answer, 429, "from your address")
    assert 0 < int(answer.headers["Retry-After"]) <= 900
    # A claim of another address is not believed, as no proxy is configured.
    with httpx.Client(base_url=api.url, headers={"X-Forwarded-For": "192.0.2.7"}) as liar:
        shown = hidden_field(liar.get("/sign-in").text, "form_token")
        assert liar.post("/sign-in", data={"key": lea.key, "form_token": shown}).status_code == 429
    # The window passes; one that lies in the future is over, too.
    for began_at in (now - PER_ADDRESS.window, now + timedelta(hours=1)):
        change_rows(api.engine, ATTEMPTS, ATTEMPTS.c.subject == HERE, began_at=began_at, count=99)
        assert sign_in(Browser(api.url), lea.key).status_code == 303


def test_failures_with_one_key_s_beginning_are_limited_and_successes_are_not_counted(
    api: PeopleApi, lea: Invited
):
    browser, subject = Browser(api.url), f"account:{lea.key[:7]}"
    for _ in range(3):
        assert sign_in(browser, lea.key).status_code == 303
        browser = Browser(api.url)
    assert (counted(api, HERE), counted(api, subject)) == (0, 0)
    guess = lea.key[:7] + "x" * 39
    assert sign_in(browser, guess).status_code == 401
    assert (counted(api, HERE), counted(api, subject)) == (1, 1)
    change_rows(api.engine, ATTEMPTS, ATTEMPTS.c.subject == subject, count=PER_ACCOUNT.failures)
    assert "with this key" in sign_in(browser, lea.key).text


def test_attempts_at_once_are_all_counted(api: PeopleApi):
    counts, now = api.parts.guard._counts, api.parts.runtime.clock.now()
    with ThreadPoolExecutor(8) as pool:
        allowed = list(
            pool.map(lambda _: counts.begin("address:at-once", PER_ADDRESS, now), range(40))
        )
    assert allowed.count(None) == PER_ADDRESS.failures


# --- logins ---


def test_a_confirmed_login_gives_a_key_of_thirty_days_once(api: PeopleApi, lea: Invited):
    verifier = secrets.token_urlsafe(32)
    assert_refused(redeem(api, verifier, "BBBB-BBBB"), 404, "not confirmed")
    code = confirmed(lea, verifier, "Lea's Läptop")
    stored = str(fetch(api.engine, select(LOGINS)))
    assert code.replace("-", "") not in stored
    assert verifier not in stored
    assert_refused(redeem(api, secrets.token_urlsafe(32), code), 404, "not confirmed")
    made = redeem(api, verifier, code.lower()).json()
    assert (made["person"], made["role"], made["project"]) == ("Lea", "submitter", "admin")
    assert made["name"].startswith("lea-s-l-ptop-")
    left = api.parts.runtime.clock.now() + timedelta(days=30)
    assert left.isoformat()[:10] == made["expires_at"][:10]
    me = api.client.get("/api/v1/me", headers=bearer(made["key"])).json()
    assert me["person"] == "Lea"
    assert_refused(redeem(api, verifier, code), 404, "was used")
    # The same page is confirmed once.
    challenge = challenge_of(verifier)
    page = lea.browser.get(f"/login?challenge={challenge}&machine=x").text
    form = {name: hidden_field(page, name) for name in ("form_token", "challenge", "machine")}
    assert "confirmed before" in lea.browser.post("/login", form).text


def test_the_pages_of_a_login_and_its_row_name_the_machine_in_letters_of_hosts(
    api: PeopleApi, lea: Invited
):
    """Its name comes with the link, from anybody."""
    sentence, shown = "build server: confirm now!", "build-server-confirm-now"
    challenge = challenge_of(secrets.token_urlsafe(32))
    page = lea.browser.get(f"/login?challenge={challenge}&machine={quote(sentence)}").text
    assert (shown in page, sentence in page) == (True, False)
    form = {name: hidden_field(page, name) for name in ("form_token", "challenge")}
    page = lea.browser.post("/login", {**form, "machine": sentence}).text
    assert (shown in page, sentence in page) == (True, False)
    [row] = fetch(api.engine, select(LOGINS).where(LOGINS.c.challenge == challenge))
    assert row.machine == shown


def test_five_wrong_codes_or_ten_minutes_end_a_login(api: PeopleApi, lea: Invited):
    verifier = secrets.token_urlsafe(32)
    code = confirmed(lea, verifier)
    wrong = "BBBB-BBBB" if code != "BBBB-BBBB" else "CCCC-CCCC"
    for _ in range(4):
        assert_refused(redeem(api, verifier, wrong), 422, "not the code")
    failed = {"action": AuditAction.LOGIN_FAIL, "subject_id": challenge_of(verifier)}
    assert rows_of(api.engine, tables.audit_entries, **failed) == []
    ended = redeem(api, verifier, wrong)
    assert_refused(ended, 409, "Too many wrong codes")
    assert_refused(redeem(api, verifier, code), 409, "Too many wrong codes")
    [row] = rows_of(api.engine, tables.audit_entries, **failed)
    lea_id = fetch_value(
        api.engine, select(tables.people.c.id).where(tables.people.c.name == "Lea")
    )
    assert (row.person_id, row.key_id, row.address) == (lea_id, None, "127.0.0.1")
    assert row.request_id == ended.headers["X-Request-ID"]
    late = secrets.token_urlsafe(32)
    code = confirmed(lea, late)
    past = api.parts.runtime.clock.now() - timedelta(seconds=1)
    change_rows(api.engine, LOGINS, LOGINS.c.challenge == challenge_of(late), expires_at=past)
    assert_refused(redeem(api, late, code), 404, "is over")


def test_of_two_who_redeem_at_once_one_gets_a_key(api: PeopleApi, lea: Invited):
    verifier = secrets.token_urlsafe(32)
    code = confirmed(lea, verifier)
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: redeem(api, verifier, code).status_code, range(4)))
    assert sorted(answers) == [201, 404, 404, 404]


def test_a_login_is_confirmed_by_a_person_on_a_page_of_ours(api: PeopleApi, lea: Invited):
    challenge = challenge_of("v" * 43)
    asked = f"/login?challenge={challenge}&machine=laptop&port=40000"
    stranger = Browser(api.url)
    assert stranger.get(asked).headers["location"].startswith("/sign-in?next=/login")
    form = {"challenge": challenge, "machine": "laptop", "form_token": "0" * 64}
    assert lea.browser.post("/login", form).status_code == 403
    robot = Browser(api.url)
    assert sign_in(robot, make_key(api.engine, api.project_id, "a-robot")).status_code == 303
    page = robot.get(asked).text
    assert "belongs to no person" in page
    form["form_token"] = hidden_field(page, "form_token")
    assert "no person" in robot.post("/login", form).text
    for bad in ("challenge=x", f"challenge={challenge}&port=80", f"challenge={challenge}&port=x"):
        assert lea.browser.get(f"/login?{bad}").status_code == 422
    assert fetch(api.engine, select(LOGINS).where(LOGINS.c.challenge == challenge)) == []
    policy = lea.browser.get(asked).headers["content-security-policy"]
    assert "form-action 'self'" in policy


def test_a_key_with_an_end_confirms_no_longer_one(api: PeopleApi, lea: Invited):
    body = {"name": "for-a-day", "expires_in": "1d", "role": "viewer"}
    short = api.client.post("/api/v1/me/keys", json=body, headers=lea.headers).json()
    browser = Browser(api.url)
    assert sign_in(browser, short["key"]).status_code == 303
    verifier = secrets.token_urlsafe(32)
    made = redeem(api, verifier, confirmed(Invited("Lea", browser, "", ""), verifier)).json()
    assert (made["expires_at"], made["role"]) == (short["expires_at"], "viewer")


def test_a_login_tells_the_role_of_an_admin_of_another_project(api: PeopleApi):
    root = bearer(make_key(api.engine, api.project_id, "root", Role.ADMIN))
    make_project(api.engine, "another")
    zoe = invited(api, "Zoe", "viewer")
    there = invitation(api, {**root, "Lowtide-Project": "another"}, "admin")
    assert accept_with(zoe.browser, there, "unread").status_code == 200
    verifier = secrets.token_urlsafe(32)
    made = redeem(api, verifier, confirmed(zoe, verifier)).json()
    assert (made["role"], made["project"]) == ("admin", "admin")


def test_the_person_s_end_is_the_end_of_what_it_has_confirmed(api: PeopleApi):
    gus = invited(api, "Gus")
    verifier = secrets.token_urlsafe(32)
    code = confirmed(gus, verifier)
    assert api.client.post("/api/v1/members/Gus/remove", json={}).status_code == 200
    before = api.count(tables.api_keys)
    assert_refused(redeem(api, verifier, code), 404, "not confirmed")
    assert api.count(tables.api_keys) == before
