"""How Lowtide asks an issuer, and what the issuer of the tests refuses, as real ones do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, parse_qsl, quote_plus, urlencode

import httpx
import pytest

from app.adapters.oidc import oidc_issuer
from app.adapters.oidc.issuers_file import IssuerEntry, IssuersFileError
from app.adapters.oidc.oidc_issuer import OidcIssuer, open_issuers
from app.adapters.system_clock import SystemClock
from app.domain.access.identity_rules import VerifiedIdentity
from app.ports.clock import Clock
from app.ports.people.identity_provider import IdentityProviderAway, IdentityRefused, SignInSecrets
from app.settings import load_settings
from tests.support.api.oidc_issuer_server import (
    CLIENT,
    FORM,
    REDIRECT,
    SECRET,
    Account,
    Client,
    IssuerServer,
    Refused,
    issuer_server,
)

Opens = Callable[..., OidcIssuer]
LEA = Account("lea-1")
SECRETS = SignInSecrets("state", "nonce", "v" * 64)


@pytest.fixture(scope="module")
def served() -> Iterator[IssuerServer]:
    with issuer_server() as made:
        yield made


@pytest.fixture
def server(served: IssuerServer) -> IssuerServer:
    served.as_usual()
    return served


@pytest.fixture
def opens(server: IssuerServer) -> Iterator[Opens]:
    """Opens the issuer as Lowtide does, but for what a test gives."""
    with ExitStack() as closing:

        def opened(
            client: str = CLIENT,
            secret: str | None = SECRET,
            redirect: str = REDIRECT,
            clock: Clock | None = None,
        ) -> OidcIssuer:
            entry = IssuerEntry(name="corp", issuer=server.url, client_id=client)
            made = OidcIssuer(entry, secret, redirect, clock or SystemClock())
            closing.callback(made.close)
            return made

        yield opened


def code_of(server: IssuerServer, opened: OidcIssuer) -> str:
    query = parse_qs(server.answer_to(opened.sign_in_address(SECRETS), LEA))
    return query["code"][0]


def sign_in(server: IssuerServer, opened: OidcIssuer) -> VerifiedIdentity:
    return opened.identity(SECRETS, code_of(server, opened))


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post", "none"])
def test_lowtide_proves_who_it_is_as_the_issuer_publishes(
    server: IssuerServer, opens: Opens, method: str
):
    server.auth_methods = [method]
    secret = None if method == "none" else SECRET
    server.clients = {CLIENT: Client(secret)}
    assert sign_in(server, opens(secret=secret)).subject == "lea-1"


def test_a_code_is_used_once(server: IssuerServer, opens: Opens):
    opened = opens()
    code = code_of(server, opened)
    opened.identity(SECRETS, code)
    with pytest.raises(IdentityRefused, match="code, or not any more"):
        opened.identity(SECRETS, code)


def test_a_code_is_for_its_client_its_address_and_its_verifier(server: IssuerServer, opens: Opens):
    elsewhere = f"{REDIRECT}/elsewhere"
    server.clients["other"] = Client("other secret")
    for opened in (opens(client="other", secret="other secret"), opens(redirect=elsewhere)):
        with pytest.raises(IdentityRefused):
            opened.identity(SECRETS, code_of(server, opens()))
    for verifier in ("w" * 64, "v" * 42, ""):
        stolen = SignInSecrets("state", "nonce", verifier)
        with pytest.raises(IdentityRefused):
            opens().identity(stolen, code_of(server, opens()))


@pytest.mark.parametrize("wrong", [{"secret": "guess"}, {"secret": None}, {"client": "unknown"}])
def test_an_issuer_that_refuses_lowtide_is_no_failure_of_the_person(
    server: IssuerServer, opens: Opens, wrong: dict[str, Any]
):
    code = code_of(server, opens())
    with pytest.raises(IdentityProviderAway, match=r"refuses Lowtide itself \(invalid_client\)"):
        opens(**wrong).identity(SECRETS, code)


def test_the_log_says_why_an_answer_was_refused(
    server: IssuerServer, opens: Opens, caplog: pytest.LogCaptureFixture
):
    server.forge = lambda claims: {**claims, "aud": "another"}
    with pytest.raises(IdentityRefused):
        sign_in(server, opens())
    assert f"issuer {server.url}: a sign-in is refused" in caplog.text
    assert "it is for another program" in caplog.text


def test_a_redirect_of_the_token_endpoint_gets_no_secret(server: IssuerServer, opens: Opens):
    opened = opens()
    code = code_of(server, opened)
    server.moved_to = f"{server.url}/moved"
    with pytest.raises(IdentityProviderAway):
        opened.identity(SECRETS, code)
    assert "/moved" not in server.reads


def test_who_waits_behind_slow_calls_is_told_so(
    server: IssuerServer, opens: Opens, monkeypatch: pytest.MonkeyPatch
):
    opened = opens()
    for _ in range(oidc_issuer._CALLS_AT_ONCE):
        opened._turns.acquire()
    monkeypatch.setattr(oidc_issuer, "_TIMEOUT", httpx.Timeout(0.01))
    with pytest.raises(IdentityProviderAway, match="others wait for it already"):
        opened.sign_in_address(SECRETS)


class HastyClock:
    """Twenty seconds pass between two looks at it."""

    def __init__(self) -> None:
        self.time = datetime(2026, 11, 28, tzinfo=UTC)

    def now(self) -> datetime:
        self.time += timedelta(seconds=20)
        return self.time

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nobody sleeps")


@pytest.mark.parametrize(
    ("published", "reason"),
    [
        ({"token_endpoint": "http://198.51.100.7/token"}, "an address must begin with https://"),
        ({"jwks_uri": None}, "an address must be"),
        ({"padding": "x" * 1_000_001}, "sends too much, or too slowly"),
    ],
    ids=["unsafe", "missing", "large"],
)
def test_what_an_issuer_publishes_is_bounded(
    server: IssuerServer, opens: Opens, published: dict[str, Any], reason: str
):
    server.published = published
    with pytest.raises(IdentityProviderAway, match=reason):
        opens().sign_in_address(SECRETS)


def test_an_issuer_that_drips_is_away(server: IssuerServer, opens: Opens):
    opened = opens(clock=HastyClock())
    with pytest.raises(IdentityProviderAway, match="too slowly"):
        opened.sign_in_address(SECRETS)


def test_keys_of_another_form_are_refused(server: IssuerServer, opens: Opens):
    server.published = {"jwks_uri": f"{server.url}/.well-known/openid-configuration"}
    with pytest.raises(IdentityProviderAway, match="list of keys has another form"):
        sign_in(server, opens())


def test_people_are_sent_back_to_an_address_that_nobody_else_reads(
    server: IssuerServer, tmp_path: Any
):
    file = tmp_path / "oidc.yaml"
    file.write_text(f"issuers: [{{name: corp, issuer: '{server.url}', client_id: lowtide}}]")
    settings = load_settings().model_copy(update={"oidc_file": file})
    with pytest.raises(IssuersFileError, match="LOWTIDE_PUBLIC_URL: must begin with https"):
        open_issuers(settings, "http://lowtide.example.com", SystemClock())


# How strict the tests' own issuer is where the tests above do not show it: it would hide a fault.


def asked(server: IssuerServer, opens: Opens, changed: dict[str, str | None]) -> str:
    """The address of a sign-in with changed parameters; None leaves one out."""
    address, _, query = opens().sign_in_address(SECRETS).partition("?")
    whole = {**dict(parse_qsl(query)), **changed}
    return f"{address}?{urlencode({name: one for name, one in whole.items() if one is not None})}"


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"response_type": "token"}, "unsupported_response_type"),
        ({"scope": "profile"}, "invalid_scope"),
        ({"code_challenge": None}, "invalid_request"),
        ({"code_challenge": "short"}, "invalid_request"),
        ({"code_challenge_method": None}, "invalid_request"),
        ({"nonce": None}, "invalid_request"),
    ],
    ids=str,
)
def test_a_wrong_request_for_a_sign_in_is_answered_with_its_error(
    server: IssuerServer, opens: Opens, changed: dict[str, str | None], error: str
):
    assert parse_qs(server.answer_to(asked(server, opens, changed), LEA))["error"] == [error]


@pytest.mark.parametrize(
    "changed",
    [{"redirect_uri": f"{REDIRECT}?x=1"}, {"redirect_uri": None}, {"client_id": "unknown"}],
    ids=str,
)
def test_no_browser_is_sent_to_an_address_that_is_not_registered(
    server: IssuerServer, opens: Opens, changed: dict[str, str | None]
):
    with pytest.raises(Refused, match="unauthorized_client"):
        server.answer_to(asked(server, opens, changed), LEA)


def proof(secret: str) -> dict[str, str]:
    """The header of client_secret_basic with a secret as it is given."""
    return {"Authorization": httpx.BasicAuth(CLIENT, secret)._auth_header}


PROVEN = proof(quote_plus(SECRET))


@pytest.mark.parametrize(
    ("headers", "more", "status", "error"),
    [
        (PROVEN, "", 200, None),
        (PROVEN, "&client_secret=x", 400, "invalid_request"),
        (PROVEN, "&code=twice", 400, "invalid_request"),
        ({**PROVEN, "Content-Type": "application/json"}, "", 400, "invalid_request"),
        ({}, "", 401, "invalid_client"),
        ({"Authorization": "Basic x"}, "", 401, "invalid_client"),
        (proof(SECRET), "", 401, "invalid_client"),
    ],
    ids=str,
)
def test_a_token_is_given_for_a_form_of_a_client_that_proves_itself_once(
    server: IssuerServer,
    opens: Opens,
    headers: dict[str, str],
    more: str,
    status: int,
    error: str | None,
):
    form = {
        "grant_type": "authorization_code", "code": code_of(server, opens()),
        "redirect_uri": REDIRECT, "code_verifier": SECRETS.verifier,
    }  # fmt: skip
    answer = httpx.post(
        f"{server.url}/token",
        content=urlencode(form) + more,
        headers={"Content-Type": FORM, **headers},
        timeout=20,
    )
    assert (answer.status_code, answer.json().get("error")) == (status, error)
    assert ("id_token" in answer.json()) is (error is None)
    assert ("WWW-Authenticate" in answer.headers) is (status == 401)
