"""People who sign in at an issuer of OpenID Connect: their accounts, groups, sessions, refusals."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, quote, urlencode, urlsplit

import pytest
from sqlalchemy import or_

from app.domain.access.login_challenge import challenge_of
from app.domain.access.roles import Role
from app.domain.audit.audit_action import AuditAction
from app.domain.deployment.credentials import digest
from app.storage.schema import tables
from app.web.access import waiting_sign_in
from app.web.access.waiting_sign_in import COOKIE
from tests.support.api.agent_api import wait_until
from tests.support.api.invited_people import Browser, Invited, admin_headers, invited
from tests.support.api.issuer_accounts import (
    MEMBERS,
    PEOPLE,
    account,
    api_with_issuer,
    assert_in,
    assert_out,
    invited_with_address,
    of_known,
    person_of,
    roles_of,
)
from tests.support.api.oidc_issuer_server import (
    CLIENT,
    PUBLIC_URL,
    SECRET,
    Account,
    IssuerServer,
    begin_at,
    come_back,
    issuer_server,
    new_key,
    sign_in_at,
    signed,
)
from tests.support.api.people_api import (
    PeopleApi,
    hidden_field,
    key_of_person,
    make_key,
    make_project,
)
from tests.support.cli.command_line import CommandLine
from tests.support.servers.postgres import PostgresForTests
from tests.support.servers.table_rows import add_row, change_rows, rows_of, waiting_for_locks

ANSWERED, ATTEMPTS = tables.answered_sign_ins, tables.sign_in_attempts
FILE = """
issuers:
  - name: corp
    label: Corp & Co
    issuer: {url}
    client_id: {client}
    groups:
      ml: {{admin: submitter, vision: viewer}}
      leads: {{vision: maintainer}}
      ops: {{vision: admin}}
      lost: {{no-such-project: admin}}
    email_domains: [example.com]
"""


@pytest.fixture(scope="module")
def server() -> Iterator[IssuerServer]:
    with issuer_server() as made:
        yield made


@pytest.fixture(scope="module")
def api(
    postgres: PostgresForTests,
    valkey_url: str,
    tmp_path_factory: pytest.TempPathFactory,
    server: IssuerServer,
) -> Iterator[PeopleApi]:
    folder: Path = tmp_path_factory.mktemp("served")
    database, issuers = postgres.clone(), FILE.format(url=server.url, client=CLIENT)
    with api_with_issuer(database, valkey_url, folder, issuers, public_url=PUBLIC_URL) as served:
        yield served


@pytest.fixture(autouse=True)
def afresh(api: PeopleApi, server: IssuerServer) -> None:
    """No attempt is counted, and the issuer forges nothing."""
    server.as_usual()
    with api.engine.begin() as connection:
        connection.execute(ATTEMPTS.delete())


@pytest.fixture
def browser(api: PeopleApi) -> Browser:
    return Browser(api.url)


def actions_of(api: PeopleApi, one: Account) -> list[AuditAction]:
    """What the audit has of the account's person, sorted."""
    found = rows_of(api.engine, tables.audit_entries, person_id=person_of(api, one).id)
    return sorted(row.action for row in found)


def test_the_sign_in_page_leads_there_and_back_to_what_was_asked_for(
    api: PeopleApi, server: IssuerServer, browser: Browser
):
    wanted = "/login?challenge=" + "c" * 43 + "&machine=laptop"
    page = browser.get(f"/sign-in?next={quote(wanted, safe='')}").text
    assert f'href="/sign-in/oidc/corp?next={quote(wanted, safe="/")}"' in page
    assert "Sign in with Corp &amp; Co" in page
    assert_in(sign_in_at(server, browser, account("ml"), wanted), wanted)
    assert "calls itself “<code>laptop</code>”" in browser.get(wanted).text
    assert browser.get("/sign-in/oidc/other").status_code == 404


@pytest.mark.parametrize(
    "elsewhere", ["https://evil.example.com", "//evil.example.com", "/sign-in"]
)
def test_nobody_is_led_to_another_site(server: IssuerServer, browser: Browser, elsewhere: str):
    assert_in(sign_in_at(server, browser, account("ml"), elsewhere))


def test_a_newcomer_becomes_a_person_by_its_groups(
    api: PeopleApi, server: IssuerServer, browser: Browser
):
    one = account("ml", "lost", email="new@example.com", email_verified=True)
    assert_in(sign_in_at(server, browser, one))
    assert browser.get("/jobs").status_code == 200
    person = person_of(api, one)
    assert (person.name, person.email) == (one.claims["preferred_username"], "new@example.com")
    assert roles_of(api, one) == {"admin": "submitter", "vision": "viewer"}
    assert actions_of(api, one) == sorted(
        [
            AuditAction.IDENTITY_LINK,
            AuditAction.MEMBER_GROUP,
            AuditAction.MEMBER_GROUP,
            AuditAction.SESSION_ISSUER,
        ]
    )
    [session] = rows_of(api.engine, tables.sessions, person_id=person.id)
    assert session.expires_at - session.created_at == timedelta(hours=12)
    [entry] = rows_of(
        api.engine, tables.audit_entries, action=AuditAction.SESSION_ISSUER, person_id=person.id
    )
    assert (entry.address, entry.key_id) == ("127.0.0.1", None)
    assert_in(sign_in_at(server, Browser(api.url), one))
    assert len(rows_of(api.engine, PEOPLE, name=person.name)) == 1


def test_groups_are_followed_and_what_was_given_by_hand_stays(
    api: PeopleApi, server: IssuerServer, browser: Browser
):
    one = account("ml")
    sign_in_at(server, browser, one)
    one.claims["groups"] = ["leads"]
    assert_in(sign_in_at(server, browser, one))
    assert roles_of(api, one) == {"vision": "maintainer"}
    speech = make_project(api.engine, f"speech-{one.subject[:8]}")
    person, now = person_of(api, one), api.parts.runtime.clock.now()
    add_row(
        api.engine, MEMBERS, person_id=person.id, project_id=speech, role=Role.SUBMITTER,
        created_at=now,
    )  # fmt: skip
    one.claims["groups"] = ["ml"]
    sign_in_at(server, browser, one)
    by_hand = {f"speech-{one.subject[:8]}": "submitter"}
    assert roles_of(api, one) == {"admin": "submitter", "vision": "viewer", **by_hand}
    changed = api.client.post(f"/api/v1/members/{person.name}/role", json={"role": "viewer"})
    assert changed.status_code == 200, changed.text
    one.claims["groups"] = []
    assert_in(sign_in_at(server, browser, one))
    # Another role by hand makes a membership one by hand.
    assert roles_of(api, one) == {"admin": "viewer", **by_hand}


def test_a_token_without_a_claim_of_groups_is_refused_and_ends_no_membership(
    api: PeopleApi, server: IssuerServer, browser: Browser
):
    one = account("ml")
    assert_in(sign_in_at(server, browser, one))
    before, rows = roles_of(api, one), actions_of(api, one)
    del one.claims["groups"]
    second = Browser(api.url)
    assert_out(sign_in_at(server, second, one), "The issuer sent no groups claim")
    assert second.get("/jobs").status_code == 303
    assert (roles_of(api, one), actions_of(api, one)) == (before, rows)
    # It is the issuer's fault: no attempt is counted.
    assert [row.count for row in rows_of(api.engine, ATTEMPTS)] == [0]


def test_removing_whom_groups_let_in_says_that_the_next_sign_in_does_it_again(
    api: PeopleApi, server: IssuerServer, browser: Browser, tmp_path: Path
):
    one = account("ml")
    sign_in_at(server, browser, one)
    name, key = person_of(api, one).name, {"LOWTIDE_API_KEY": api.key}
    cli = CommandLine(tmp_path, {"LOWTIDE_SERVER_URL": api.url, **key})
    assert server.url in cli.ok("member").row(name)
    removed = cli.ok("member", "remove", name)
    assert removed.out == f"{name} is no member any more.\n"
    assert f"at {server.url} give the membership again" in " ".join(removed.errors.split())
    assert roles_of(api, one) == {"vision": "viewer"}
    assert_in(sign_in_at(server, browser, one))
    assert roles_of(api, one) == {"admin": "submitter", "vision": "viewer"}
    assert cli.ok("member", "role", name, "viewer").errors == ""
    # By hand from then on.
    assert cli.ok("member", "remove", name).errors == ""


def test_who_leaves_all_groups_is_out_at_once_with_every_browser(
    api: PeopleApi, server: IssuerServer, browser: Browser
):
    one = account("ml")
    sign_in_at(server, browser, one)
    second = Browser(api.url)
    one.claims["groups"] = []
    answer = sign_in_at(server, second, one)
    assert_out(answer, "You are in no project")
    assert roles_of(api, one) == {}
    assert browser.get("/jobs").status_code == 303


def test_who_is_in_no_project_is_told_whom_to_ask_and_not_stored(
    api: PeopleApi, server: IssuerServer, browser: Browser
):
    invited(api, "Grace", "admin", admin_headers(api, "root-of-grace"))
    before = api.count(PEOPLE)
    one = account("lost", "unknown")
    answer = sign_in_at(server, browser, one)
    assert_out(answer, "You are in no project")
    assert "Grace" in answer.text
    assert one.claims["preferred_username"] in answer.text
    assert api.count(PEOPLE) == before
    assert person_of(api, one) is None


def test_the_last_admin_stays_against_its_groups(
    api: PeopleApi, server: IssuerServer, browser: Browser, caplog: pytest.LogCaptureFixture
):
    keys = tables.api_keys
    one = account("ops")
    sign_in_at(server, browser, one)
    person = person_of(api, one)
    key_of_person(api.engine, api.project_id, person.id)
    admins = or_(keys.c.role == Role.ADMIN, keys.c.limit_role == Role.ADMIN)
    others = admins & keys.c.person_id.is_distinct_from(person.id)
    now = api.parts.runtime.clock.now()
    change_rows(api.engine, keys, others, revoked_at=now)
    one.claims["groups"] = ["ml"]
    with caplog.at_level(logging.WARNING):
        assert_in(sign_in_at(server, browser, one))
    assert roles_of(api, one) == {"admin": "submitter", "vision": "admin"}
    assert AuditAction.MEMBER_KEPT in actions_of(api, one)
    assert f"{person.name} stays admin of vision" in caplog.text
    make_key(api.engine, api.project_id, f"other-{person.id}", Role.ADMIN)
    assert_in(sign_in_at(server, browser, one))
    assert roles_of(api, one) == {"admin": "submitter", "vision": "viewer"}


@pytest.fixture
def known(api: PeopleApi) -> Invited:
    return invited_with_address(api)


def test_a_verified_address_of_a_listed_domain_finds_its_person_and_ends_older_keys(
    api: PeopleApi, server: IssuerServer, browser: Browser, known: Invited
):
    one = of_known(known)
    answer = sign_in_at(server, browser, one)
    assert answer.status_code == 200, answer.text
    assert "you sign in with Corp &amp; Co from now on" in answer.text
    assert "Your earlier key has ended" in answer.text
    assert person_of(api, one).name == known.name
    assert roles_of(api, one) == {"admin": "submitter"}, "made by hand, and no group says so"
    assert api.client.get("/api/v1/me", headers=known.headers).status_code == 401
    assert known.browser.get("/jobs").status_code == 303
    assert browser.get("/jobs").status_code == 200
    assert_in(sign_in_at(server, browser, one))
    # The address may be another person's by now.
    assert_out(sign_in_at(server, Browser(api.url), of_known(known)), "You are in no project")


def test_keys_stay_where_the_same_browser_shows_both(
    api: PeopleApi, server: IssuerServer, known: Invited
):
    one = of_known(known)
    assert_in(sign_in_at(server, known.browser, one))
    person = person_of(api, one)
    assert person.name == known.name
    # The session of before has ended: nobody can name it any more.
    assert len(rows_of(api.engine, tables.sessions, person_id=person.id, ended_at=None)) == 1
    assert api.client.get("/api/v1/me", headers=known.headers).status_code == 200


def test_accounts_sign_in_one_after_the_other(api: PeopleApi, server: IssuerServer, known: Invited):
    """One new account makes one person; of two with one address, one becomes the person's."""
    twice = account("ml")
    accounts = (twice, twice, of_known(known), of_known(known))
    with ThreadPoolExecutor(len(accounts)) as pool:
        with api.parts.runtime.begin() as uow:
            uow.keys.lock_admins()
            answers = [pool.submit(sign_in_at, server, Browser(api.url), one) for one in accounts]
            wait_until(lambda: waiting_for_locks(api.engine) == len(accounts), seconds=20)
        first, second, *rivals = (answer.result(60) for answer in answers)
    assert_in(first)
    assert_in(second)
    assert len(rows_of(api.engine, PEOPLE, name=twice.claims["preferred_username"])) == 1
    assert sorted(answer.status_code for answer in rivals) == [200, 403]


@pytest.mark.parametrize(
    "claims",
    [
        {"email_verified": False},
        {"email_verified": "true"},
        {"email": "someone@elsewhere.org"},
    ],
    ids=str,
)
def test_another_address_makes_another_person(
    api: PeopleApi, server: IssuerServer, browser: Browser, known: Invited, claims: dict[str, Any]
):
    if "email" in claims:
        change_rows(api.engine, PEOPLE, PEOPLE.c.name == known.name, email=claims["email"])
    one = of_known(known, "ml", **claims)
    assert_in(sign_in_at(server, browser, one))
    assert person_of(api, one).name == one.claims["preferred_username"]
    assert api.client.get("/api/v1/me", headers=known.headers).status_code == 200


def test_an_address_of_two_people_finds_neither(
    api: PeopleApi, server: IssuerServer, browser: Browser, known: Invited
):
    [row] = rows_of(api.engine, PEOPLE, name=known.name)
    twin = invited(api, f"twin {row.id.hex[:6]}")
    change_rows(api.engine, PEOPLE, PEOPLE.c.name == twin.name, email=row.email)
    one = of_known(known, "ml")
    assert_in(sign_in_at(server, browser, one))
    assert person_of(api, one).name not in (known.name, twin.name)


def test_a_name_that_is_taken_gets_a_number(api: PeopleApi, server: IssuerServer, browser: Browser):
    invited(api, "Eda")
    make_key(api.engine, api.project_id, "eda-2")
    one = account("ml", preferred_username="EDA", name="a/b")
    sign_in_at(server, browser, one)
    assert person_of(api, one).name == "EDA 2"
    make_key(api.engine, api.project_id, "nightly-ci")
    robot = account("ml", preferred_username="Nightly-CI")
    sign_in_at(server, Browser(api.url), robot)
    assert person_of(api, robot).name == "Nightly-CI 2", "histories name the key so"


def test_a_disabled_person_stays_out(api: PeopleApi, server: IssuerServer, browser: Browser):
    one = account("ml")
    sign_in_at(server, browser, one)
    person = person_of(api, one)
    change_rows(api.engine, PEOPLE, PEOPLE.c.id == person.id, disabled_at=person.created_at)
    assert_out(sign_in_at(server, Browser(api.url), one), "is disabled; ask an admin")


def test_an_answer_is_good_once_and_in_its_own_browser(
    api: PeopleApi, server: IssuerServer, browser: Browser
):
    one = account("ml")
    query = server.answer_to(begin_at(browser), one)
    waiting = browser.cookies[COOKIE]
    assert_out(come_back(Browser(api.url), query), "This browser has not begun this sign-in")
    other = Browser(api.url)
    begin_at(other)
    assert_out(come_back(other, query), "This browser has not begun this sign-in")
    ended = api.parts.runtime.clock.now()
    add_row(api.engine, ANSWERED, state_hash="of an hour ago", expires_at=ended)
    assert_in(come_back(browser, query))
    # The mark stays as long as the cookie is good; what is over goes.
    [mark] = rows_of(api.engine, ANSWERED, state_hash=digest(parse_qs(query)["state"][0]))
    assert mark.expires_at >= ended + timedelta(minutes=10)
    assert rows_of(api.engine, ANSWERED, state_hash="of an hour ago") == []
    assert COOKIE not in browser.cookies
    assert_out(come_back(browser, query), "This browser has not begun this sign-in")
    browser.cookies.set(COOKIE, waiting, domain="127.0.0.1", path="/sign-in/oidc")
    assert_out(come_back(browser, query), "an answer works only once")


def test_a_waiting_sign_in_cannot_be_made_up_or_changed_and_waits_for_ten_minutes(
    server: IssuerServer, browser: Browser, monkeypatch: pytest.MonkeyPatch
):
    query = server.answer_to(begin_at(browser), account("ml"))
    waiting = browser.cookies[COOKIE]
    assert waiting_sign_in._SECONDS == 600
    monkeypatch.setattr(waiting_sign_in, "_SECONDS", -1)
    assert_out(come_back(browser, query), "This browser has not begun this sign-in")
    monkeypatch.undo()
    browser.cookies.set(COOKIE, f"x{waiting[1:]}", domain="127.0.0.1", path="/sign-in/oidc")
    assert_out(come_back(browser, query), "This browser has not begun this sign-in")


def test_nonce_and_verifier_belong_to_one_sign_in(browser: Browser):
    first, second = (dict(parse_qsl(urlsplit(begin_at(browser)).query)) for _ in range(2))
    for name in ("state", "nonce", "code_challenge"):
        assert first[name] != second[name]
    # The nonce stands in the address, so it is not the verifier.
    assert challenge_of(first["nonce"]) != first["code_challenge"]


def test_a_code_is_worth_nothing_in_another_sign_in(
    api: PeopleApi, server: IssuerServer, browser: Browser
):
    stolen = parse_qs(server.answer_to(begin_at(Browser(api.url)), account("ml")))["code"][0]
    own = parse_qs(urlsplit(begin_at(browser)).query)["state"][0]
    query = urlencode({"code": stolen, "state": own})
    # It lacks the verifier that the code was asked for with.
    assert_out(come_back(browser, query), "does not take this sign-in&#39;s code")


@pytest.mark.parametrize(
    ("answered", "reason"),
    [
        ({"error": "access_denied"}, "has not signed you in: access_denied"),
        ({"error": "<script>"}, "has not signed you in: script"),
        ({}, "it gave no code"),
        ({"code": "1", "iss": "https://evil.example.com"}, "names another issuer"),
        ({"code": "of nobody"}, "does not take this sign-in&#39;s code"),
    ],
    ids=str,
)
def test_an_answer_without_a_good_code_is_explained(
    browser: Browser, answered: dict[str, str], reason: str
):
    state = parse_qs(urlsplit(begin_at(browser)).query)["state"][0]
    assert_out(come_back(browser, urlencode({"state": state, **answered})), reason)


def test_a_forged_token_signs_nobody_in(api: PeopleApi, server: IssuerServer, browser: Browser):
    """Each way to forge one is looked at in tests/unit/access/test_id_tokens.py."""
    before = api.count(tables.sessions)
    usual, stranger = server.sign, new_key("first")
    server.sign = lambda claims: signed(stranger, claims)
    try:
        assert_out(sign_in_at(server, browser, account("ml")), "its signature is not good")
    finally:
        server.sign = usual
    server.forge = lambda claims: {**claims, "nonce": "of another sign-in"}
    assert_out(sign_in_at(server, browser, account("ml")), "it answers another sign-in")
    assert api.count(tables.sessions) == before


def test_an_issuer_that_is_away_is_told_and_no_failure_of_ours(
    api: PeopleApi, server: IssuerServer, browser: Browser
):
    query = server.answer_to(begin_at(browser), account("ml"))
    server.is_away = True
    answer = come_back(browser, query)
    assert answer.status_code == 503
    assert "Corp &amp; Co cannot be used at the moment" in answer.text
    assert [row.count for row in rows_of(api.engine, ATTEMPTS)] == [0]


def test_attempts_are_limited(api: PeopleApi, server: IssuerServer, browser: Browser):
    for _ in range(30):
        assert come_back(browser, "state=x&code=y").status_code == 403
    assert come_back(browser, "state=x&code=y").status_code == 429
    token = hidden_field(browser.get("/sign-in").text, "form_token")
    form = {"key": api.key, "form_token": token}
    # Keys have counts of their own: who plays issuer does not close them to a whole office.
    assert browser.post("/sign-in", form).status_code == 303


def test_the_secret_is_in_no_page_log_or_cookie(
    api: PeopleApi, server: IssuerServer, browser: Browser, caplog: pytest.LogCaptureFixture
):
    with caplog.at_level(logging.DEBUG):
        address = begin_at(browser)
        answer = come_back(browser, server.answer_to(address, account("ml")))
    shown = [address, answer.text, str(answer.headers), str(browser.cookies), caplog.text]
    assert not [one for one in shown if SECRET in one or quote(SECRET) in one]
