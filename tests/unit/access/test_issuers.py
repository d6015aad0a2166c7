"""Issuers as their file has them, and as they publish themselves."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr

from app.adapters.oidc.issuers_file import IssuersFileError, read_issuers, secret_of
from app.adapters.oidc.published import Published
from app.domain.access.identity_rules import (
    IssuerRules,
    VerifiedIdentity,
    names_to_try,
    roles_by_groups,
    trusted_email,
)
from app.domain.access.roles import Role
from app.ports.people.identity_provider import IdentityProviderAway
from app.settings import SettingsError, load_settings
from tests.support.api.oidc_issuer_server import IssuerServer, issuer_server, new_key
from tests.support.servers.tls_server import Authority, served

FILE = """
issuers:
  - name: corp
    label: Corp
    issuer: https://login.example.com/realms/corp
    client_id: lowtide
    groups:
      ml: {vision: submitter, speech: viewer}
      ops: {default: admin}
    email_domains: [Example.com]
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "oidc.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_is_read(tmp_path: Path):
    [entry] = read_issuers(write(tmp_path, FILE))
    assert entry.rules.groups["ml"] == {"vision": Role.SUBMITTER, "speech": Role.VIEWER}
    assert entry.rules.email_domains == {"example.com"}
    assert entry.scopes == ("openid", "profile", "email")
    assert entry.needs_groups_claim
    assert secret_of(entry, {}) is None
    assert secret_of(entry, {"corp": SecretStr("s")}) == "s"


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("https://login", "http://login", "issuers.0.issuer: must begin with https://"),
        ("https://login", "ldap://login", "issuers.0.issuer: must begin with https://"),
        ("name: corp", "name: Corp/x", "issuers.0.name"),
        ("submitter", "owner", "issuers.0.groups.ml.vision"),
        ("vision:", "Vi sion:", "cannot name a project"),
        ("client_id: lowtide", "client_secret: s3cret", "issuers.0.client_id"),
        ("[Example.com]", "[lea@example.com]", "must be a domain"),
        ("issuers:", "issuer:", "issuers: field required"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, old: str, new: str, reason: str):
    with pytest.raises(IssuersFileError) as raised:
        read_issuers(write(tmp_path, FILE.replace(old, new)))
    assert reason in str(raised.value)
    assert "s3cret" not in str(raised.value)


def test_a_claim_of_groups_may_be_missing_where_the_file_says_so_or_maps_none(tmp_path: Path):
    optional = FILE.replace("    groups:", "    groups_claim_optional: true\n    groups:")
    [entry] = read_issuers(write(tmp_path, optional))
    assert not entry.needs_groups_claim
    none = FILE[: FILE.index("    groups:")]
    [entry] = read_issuers(write(tmp_path, none))
    assert not entry.needs_groups_claim


def test_an_issuer_is_written_once(tmp_path: Path):
    twice = FILE + FILE.replace("issuers:", "").replace("name: corp", "name: other")
    with pytest.raises(IssuersFileError, match="the same issuer"):
        read_issuers(write(tmp_path, twice))


def test_a_secret_comes_from_its_file(tmp_path: Path):
    secret = tmp_path / "secret"
    text = FILE.replace("client_id:", f"client_secret_file: {secret}\n    client_id:")
    [entry] = read_issuers(write(tmp_path, text))
    with pytest.raises(IssuersFileError, match="No such file"):
        secret_of(entry, {})
    secret.write_text("of the file\n", encoding="utf-8")
    assert secret_of(entry, {"corp": SecretStr("other")}) == "of the file"


def test_a_wrong_list_of_secrets_is_not_repeated(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LOWTIDE_OIDC_CLIENT_SECRETS", "corp=s3cret")
    with pytest.raises(SettingsError) as raised:
        load_settings()
    assert "must be JSON" in str(raised.value)
    assert "s3cret" not in str(raised.value)
    monkeypatch.setenv("LOWTIDE_OIDC_CLIENT_SECRETS", '{"corp": "s3cret"}')
    settings = load_settings()
    assert settings.oidc_client_secrets["corp"].get_secret_value() == "s3cret"
    assert "s3cret" not in repr(settings)


class SetClock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.time = datetime(2026, 11, 28, tzinfo=UTC)

    def now(self) -> datetime:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)


@pytest.fixture
def server() -> Iterator[IssuerServer]:
    with issuer_server() as made:
        yield made


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=5) as made:
        yield made


def test_keys_are_kept_and_read_again_for_an_unknown_one_once_a_minute(
    server: IssuerServer, client: httpx.Client
):
    clock = SetClock()
    published = Published(server.url, client, clock)
    for _ in range(3):
        assert [key["kid"] for key in published.keys("first")] == ["first"]
    assert server.reads.count("/keys") == 1
    server.published_keys = [server.key, new_key("second")]
    published.keys("second")
    assert server.reads.count("/keys") == 1, "they were read within the minute"
    clock.sleep(61)
    assert [key["kid"] for key in published.keys("second")] == ["first", "second"]
    published.keys("third")
    assert server.reads.count("/keys") == 2
    clock.sleep(61)
    published.keys(None)
    assert server.reads.count("/keys") == 3, "a token that names no key may have a new one"
    clock.sleep(3_601)
    published.keys("first")
    assert server.reads.count("/keys") == 4, "a key that was taken back is good for an hour"


def test_an_issuer_is_what_it_calls_itself(server: IssuerServer, client: httpx.Client):
    with pytest.raises(IdentityProviderAway, match="it calls itself"):
        Published(f"{server.url}/", client, SetClock()).endpoints()


def test_an_issuer_that_fails_is_away(server: IssuerServer, client: httpx.Client):
    server.is_away = True
    published = Published(server.url, client, SetClock())
    with pytest.raises(IdentityProviderAway, match="answers 503"):
        published.endpoints()
    server.as_usual()
    assert published.endpoints().token == f"{server.url}/token"


RULES = IssuerRules(
    "corp",
    "Corp",
    "https://login.example.com",
    {
        "ml": {"vision": Role.SUBMITTER, "speech": Role.VIEWER},
        "leads": {"vision": Role.MAINTAINER},
        "audit": {"speech": Role.AUDITOR},
    },
    frozenset({"example.com"}),
)


def test_a_certificate_that_is_not_trusted_is_said_to_be_so(tmp_path: Path, client: httpx.Client):
    with served(Authority().server(tmp_path, "localhost", days=9)) as port:
        published = Published(f"https://localhost:{port}", client, SetClock())
        with pytest.raises(IdentityProviderAway, match="certificate that is not trusted"):
            published.endpoints()
    with pytest.raises(IdentityProviderAway, match=r"does not answer \(ConnectError\)"):
        published.endpoints()


def identity(**fields: object) -> VerifiedIdentity:
    return VerifiedIdentity("https://login.example.com", "1", **fields)  # type: ignore[arg-type]


def test_of_several_groups_the_greatest_role_counts():
    groups = frozenset({"ml", "leads", "audit", "unknown"})
    assert roles_by_groups(RULES, identity(groups=groups)) == {
        "vision": Role.MAINTAINER,
        "speech": Role.AUDITOR,
    }
    assert roles_by_groups(RULES, identity()) == {}


@pytest.mark.parametrize(
    ("email", "verified", "trusted"),
    [
        ("Lea@Example.com", True, "lea@example.com"),
        ("lea@example.com", False, None),
        ("lea@example.com.evil.org", True, None),
        ("lea@sub.example.com", True, None),
        ("example.com", True, None),
        (None, True, None),
    ],
)
def test_an_address_is_trusted_in_the_domains_of_the_issuer(
    email: str | None, verified: bool, trusted: str | None
):
    assert trusted_email(RULES, identity(email=email, email_verified=verified)) == trusted


def test_a_newcomer_gets_the_first_name_that_can_be_one():
    names = list(names_to_try(identity(names=("CORP\\lea", "Lea Müller", "lea@example.com"))))
    assert names[:4] == ["Lea Müller", "lea@example.com", "Lea Müller 2", "Lea Müller 3"]
    assert len(names) == 100
    assert next(names_to_try(identity(names=("\u200b",)))) == "person"
    assert all(len(name) <= 80 for name in names_to_try(identity(names=("x" * 80,))))
