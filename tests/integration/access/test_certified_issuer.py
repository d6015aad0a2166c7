"""Sign-in at `oidc-provider`, an issuer that OpenID has certified, in a process of its own.

Here: that both understand each other, and what each refuses of the other. Not here: what groups,
addresses and forged tokens mean in detail (`test_issuer_sign_in`, its short sibling).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import httpx
import pytest

from app.adapters.oidc.oidc_issuer import OidcIssuer
from app.adapters.system_clock import SystemClock
from app.web.access.waiting_sign_in import COOKIE
from tests.support.api.invited_people import Browser
from tests.support.api.issuer_accounts import (
    account,
    api_with_issuer,
    assert_in,
    assert_out,
    invited_with_address,
    of_known,
    person_of,
    roles_of,
)
from tests.support.api.oidc_issuer_server import CLIENT, SECRET, Account, begin_at, come_back
from tests.support.api.oidc_provider_process import ProviderProcess, pass_forms, provider_process
from tests.support.api.people_api import PeopleApi
from tests.support.servers.free_port import free_port
from tests.support.servers.postgres import PostgresForTests

pytestmark = pytest.mark.full

FILE = """
issuers:
  - name: corp
    label: Corp
    issuer: {url}
    client_id: {client}
    scopes: [openid, profile, email, groups]
    groups:
      ml: {{admin: submitter, vision: viewer}}
      leads: {{vision: maintainer}}
    email_domains: [example.com]
"""


@pytest.fixture(scope="module")
def port() -> int:
    """The api's: the provider must know the address to which it sends browsers back."""
    return free_port()


@pytest.fixture(scope="module")
def running(port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProviderProcess]:
    folder = tmp_path_factory.mktemp("provider")
    back = f"http://127.0.0.1:{port}/sign-in/oidc/corp/callback"
    with provider_process(folder, CLIENT, SECRET, back) as started:
        yield started


@pytest.fixture(scope="module")
def api(
    postgres: PostgresForTests,
    valkey_url: str,
    tmp_path_factory: pytest.TempPathFactory,
    running: ProviderProcess,
    port: int,
) -> Iterator[PeopleApi]:
    folder: Path = tmp_path_factory.mktemp("served")
    issuers = FILE.format(url=running.url, client=CLIENT)
    with api_with_issuer(postgres.clone(), valkey_url, folder, issuers, port=port) as served:
        yield served


@pytest.fixture
def provider(running: ProviderProcess) -> Iterator[ProviderProcess]:
    """It has not failed to the end of the test, whatever it refused."""
    yield running
    failed = [event for event in running.events() if event["event"] == "failed"]
    assert failed == []


@pytest.fixture
def browser(api: PeopleApi) -> Browser:
    return Browser(api.url)


def answer_of(provider: ProviderProcess, api: PeopleApi, browser: Browser, one: Account) -> str:
    """The query with which the browser comes back, once the account has signed in there."""
    provider.know(one)
    address = pass_forms(browser, begin_at(browser), one.subject, until=api.url)
    return urlsplit(address).query


def sign_in(
    provider: ProviderProcess, api: PeopleApi, browser: Browser, one: Account
) -> httpx.Response:
    """The whole way: to the provider, through its forms, and back."""
    return come_back(browser, answer_of(provider, api, browser, one))


def test_groups_give_roles_and_are_followed(
    api: PeopleApi, provider: ProviderProcess, browser: Browser
):
    one = account("ml", email="new@example.com", email_verified=True)
    assert_in(sign_in(provider, api, browser, one))
    assert browser.get("/jobs").status_code == 200
    person = person_of(api, one)
    assert (person.name, person.email) == (one.claims["preferred_username"], "new@example.com")
    assert roles_of(api, one) == {"admin": "submitter", "vision": "viewer"}
    # The same browser: the provider knows it, and asks for nothing.
    one.claims["groups"] = ["leads"]
    assert_in(sign_in(provider, api, browser, one))
    assert roles_of(api, one) == {"vision": "maintainer"}
    one.claims["groups"] = []
    other = Browser(api.url)
    assert_out(sign_in(provider, api, other, one), "You are in no project")
    assert other.get("/jobs").status_code == 303
    assert browser.get("/jobs").status_code == 303


def test_groups_at_userinfo_alone_sign_nobody_in_and_end_nothing(
    api: PeopleApi, provider: ProviderProcess, browser: Browser
):
    one = account("ml")
    assert_in(sign_in(provider, api, browser, one))
    before = roles_of(api, one)
    provider.kill()
    provider.keeps_claims_at_userinfo = True
    provider.start()
    try:
        answer = sign_in(provider, api, Browser(api.url), one)
    finally:
        provider.kill()
        provider.keeps_claims_at_userinfo = False
        provider.start()
    assert_out(answer, "The issuer sent no groups claim")
    assert roles_of(api, one) == before
    assert_in(sign_in(provider, api, browser, one))


@pytest.mark.parametrize(
    ("domain", "is_verified", "is_found"),
    [("example.com", True, True), ("example.com", False, False), ("elsewhere.org", True, False)],
)
def test_only_a_verified_address_of_a_listed_domain_finds_its_person(
    api: PeopleApi,
    provider: ProviderProcess,
    browser: Browser,
    domain: str,
    is_verified: bool,
    is_found: bool,
):
    known = invited_with_address(api, domain)
    address = f"{known.name[6:]}@{domain}"
    one = of_known(known, "ml", email=address, email_verified=is_verified)
    answer = sign_in(provider, api, browser, one)
    name = person_of(api, one).name
    if is_found:
        assert "you sign in with Corp from now on" in answer.text
        assert name == known.name
    else:
        assert_in(answer)
        assert name == one.claims["preferred_username"]


def test_an_answer_is_good_once(api: PeopleApi, provider: ProviderProcess, browser: Browser):
    query = answer_of(provider, api, browser, account("ml"))
    waiting = browser.cookies.get(COOKIE)
    assert waiting is not None
    assert parse_qs(query)["iss"] == [provider.url]
    assert_in(come_back(browser, query))
    assert_out(come_back(browser, query), "This browser has not begun this sign-in")
    browser.cookies.set(COOKIE, waiting, domain="127.0.0.1", path="/sign-in/oidc")
    assert_out(come_back(browser, query), "an answer works only once")


def test_the_provider_insists_on_pkce(api: PeopleApi, provider: ProviderProcess, browser: Browser):
    parts = urlsplit(begin_at(browser))
    asked = parse_qsl(parts.query)
    without = [(name, value) for name, value in asked if not name.startswith("code_challenge")]
    assert len(without) == len(asked) - 2
    stripped = parts._replace(query=urlencode(without)).geturl()
    answered = pass_forms(browser, stripped, "nobody", until=api.url)
    refused = provider.events()[-1]
    assert (refused["event"], refused["error"]) == ("refused", "invalid_request")
    assert "requires PKCE" in refused["why"]
    assert_out(come_back(browser, urlsplit(answered).query), "signed you in: invalid_request")
    assert_in(sign_in(provider, api, browser, account("ml")))
    assert provider.events()[-1]["pkce"] == "S256"


def test_a_code_is_worth_nothing_in_another_sign_in(
    api: PeopleApi, provider: ProviderProcess, browser: Browser
):
    query = answer_of(provider, api, Browser(api.url), account("ml"))
    own = parse_qs(urlsplit(begin_at(browser)).query)["state"][0]
    stolen = urlencode({**dict(parse_qsl(query)), "state": own})
    assert_out(come_back(browser, stolen), "does not take this sign-in&#39;s code")
    refused = provider.events()[-1]
    assert (refused["error"], refused["why"]) == ("invalid_grant", "PKCE verification failed")


def test_who_turns_back_at_the_provider_is_told(
    api: PeopleApi, provider: ProviderProcess, browser: Browser
):
    form = browser.get(begin_at(browser)).headers["location"]
    back = browser.get(f"{provider.url}{urlsplit(form).path}/abort").headers["location"]
    query = urlsplit(pass_forms(browser, back, "nobody", until=api.url)).query
    assert_out(come_back(browser, query), "Corp has not signed you in: access_denied")


class LaterClock(SystemClock):
    """Ahead of the machine's, by more than the minute in which keys are not read again."""

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=61)


def test_a_new_key_is_read(
    api: PeopleApi, provider: ProviderProcess, browser: Browser, monkeypatch: pytest.MonkeyPatch
):
    one = account("ml")
    assert_in(sign_in(provider, api, browser, one))
    key_id = provider.add_key()
    provider.kill()
    provider.start()
    published = httpx.get(f"{provider.url}/jwks", timeout=60).json()["keys"]
    assert next(key["kid"] for key in published) == key_id
    assert len(published) == 2
    issuer = api.parts.identity_providers["corp"]
    assert isinstance(issuer, OidcIssuer)
    monkeypatch.setattr(issuer._published, "_clock", LaterClock())
    assert_in(sign_in(provider, api, browser, one))


def test_a_provider_that_is_killed_is_told_and_gives_no_session(
    api: PeopleApi, provider: ProviderProcess, browser: Browser
):
    one = account("ml")
    query = answer_of(provider, api, browser, one)
    provider.kill()
    try:
        assert_out(come_back(browser, query), "Corp cannot be used at the moment", 503)
    finally:
        provider.start()
    assert browser.get("/jobs").status_code == 303
    assert person_of(api, one) is None
    # It has forgotten its sessions and codes.
    assert_out(come_back(browser, query), "an answer works only once")
    assert_in(sign_in(provider, api, browser, one))
