"""ID tokens: one that is good is read, and each way to forge one is refused."""

from __future__ import annotations

import base64
import hmac
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from joserfc import jwt
from joserfc.jwk import OctKey

from app.adapters.oidc.id_token import identity_of, verified_claims
from app.ports.people.identity_provider import IdentityIncomplete, IdentityRefused
from tests.support.api.oidc_issuer_server import CLIENT, Claims, new_key, signed

NOW = datetime(2026, 11, 28, 7, tzinfo=UTC)
AT = int(NOW.timestamp())
ISSUER, NONCE = "https://login.example.com", "nonce of this sign-in"
KEY, STRANGER = new_key("first"), new_key("first")
GOOD: Claims = {
    "iss": ISSUER, "sub": "1", "aud": CLIENT, "iat": AT, "exp": AT + 300, "nonce": NONCE,
}  # fmt: skip


def verify(token: str, now: datetime = NOW, access_token: str | None = None) -> Any:
    def keys(key_id: str | None) -> list[dict[str, Any]]:
        return [dict(KEY.as_dict(private=False))]

    return verified_claims(
        token, keys, issuer=ISSUER, client_id=CLIENT, nonce=NONCE, access_token=access_token,
        now=now,
    )  # fmt: skip


def test_a_good_token_is_read():
    token = signed(KEY, {**GOOD, "preferred_username": "lea", "groups": ["ml", "ops"]})
    found = identity_of(verify(token), "groups", needs_groups=True)
    assert (found.issuer, found.subject, found.names) == (ISSUER, "1", ("lea",))
    assert found.groups == {"ml", "ops"}
    assert (found.email, found.email_verified) == (None, False)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"exp": AT - 61}, "expired"),
        ({"iat": AT + 61}, "of the future"),
        ({"nbf": AT + 61}, "of the future"),
        ({"iss": "https://evil.example.com"}, "another issuer"),
        ({"iss": f"{ISSUER}/"}, "another issuer"),
        ({"aud": "another-program"}, "another program"),
        ({"aud": ["another-program", "third"]}, "another program"),
        ({"aud": [CLIENT, "another-program"], "azp": "another-program"}, "another program"),
        ({"aud": [CLIENT, "another-program"]}, "another program"),
        ({"azp": "another-program"}, "another program"),
        ({"nonce": "of another sign-in"}, "another sign-in"),
        ({"nonce": None}, "another sign-in"),
        ({"exp": "tomorrow"}, "cannot be used"),
        ({"iat": None}, "of the future"),
        ({"at_hash": "of-another-token"}, "another token"),
    ],
    ids=str,
)
def test_a_signed_token_with_a_wrong_claim_is_refused(changed: Claims, reason: str):
    claims = {name: value for name, value in {**GOOD, **changed}.items() if value is not None}
    with pytest.raises(IdentityRefused, match=reason):
        verify(signed(KEY, claims), access_token="access")


@pytest.mark.parametrize("missing", GOOD)
def test_a_token_without_one_of_its_claims_is_refused(missing: str):
    with pytest.raises(IdentityRefused):
        verify(signed(KEY, {name: value for name, value in GOOD.items() if name != missing}))


def test_clocks_may_differ_by_a_minute():
    for skew in (timedelta(seconds=359), timedelta(seconds=-59)):
        assert verify(signed(KEY, GOOD), NOW + skew)["sub"] == "1"


def test_an_access_token_that_belongs_to_it_is_taken():
    at_hash = _encoded(sha256(b"access").digest()[:16])
    assert verify(signed(KEY, {**GOOD, "at_hash": at_hash}), access_token="access")["sub"] == "1"


def _encoded(part: bytes) -> str:
    return base64.urlsafe_b64encode(part).decode().rstrip("=")


def _body(algorithm: str, claims: Claims = GOOD) -> str:
    header = {"alg": algorithm, "kid": "first"}
    return ".".join(_encoded(json.dumps(part).encode()) for part in (header, claims))


def _unsigned() -> str:
    return f"{_body('none')}."


def _by_public_key() -> str:
    """A library that takes the algorithm from the token takes the public key for the secret."""
    pem = KEY.public_key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    signature = hmac.new(pem, _body("HS256").encode(), sha256).digest()
    return f"{_body('HS256')}.{_encoded(signature)}"


def _changed() -> str:
    _, _, signature = signed(KEY, GOOD).split(".")
    return f"{_body('ES256', {**GOOD, 'sub': '2'})}.{signature}"


@pytest.mark.parametrize(
    "forged",
    [
        _unsigned,
        _by_public_key,
        _changed,
        lambda: signed(STRANGER, GOOD),
        lambda: signed(KEY, GOOD, kid="unknown"),
        lambda: "no token",
        lambda: "a.b.c",
        lambda: "x" * 70_000,
        lambda: "ключ.ключ.ключ",
    ],
    ids=["none", "HS256", "changed", "other key", "unknown kid", "text", "parts", "long", "script"],
)
def test_a_token_that_the_issuer_has_not_signed_is_refused(forged: Callable[[], str]):
    with pytest.raises(IdentityRefused):
        verify(forged())


def test_a_symmetric_key_among_the_published_ones_signs_nothing():
    secret = OctKey.import_key({"kty": "oct", "k": "c2VjcmV0c2VjcmV0c2VjcmV0", "kid": "first"})
    token = jwt.encode({"alg": "HS256", "kid": "first"}, GOOD, secret, algorithms=["HS256"])
    with pytest.raises(IdentityRefused):
        verified_claims(
            token, lambda _: [dict(secret.as_dict(private=True))], issuer=ISSUER,
            client_id=CLIENT, nonce=NONCE, access_token=None, now=NOW,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("claims", "claim", "groups"),
    [
        ({}, "groups", set()),
        ({"groups": "ml"}, "groups", {"ml"}),
        ({"realm_access": {"roles": ["ml"]}}, "realm_access.roles", {"ml"}),
        ({"https://example.com/groups": ["ml"]}, "https://example.com/groups", {"ml"}),
    ],
)
def test_groups_are_where_the_file_says(claims: Claims, claim: str, groups: set[str]):
    assert identity_of({**GOOD, **claims}, claim, needs_groups=bool(groups)).groups == groups


@pytest.mark.parametrize(
    "claims",
    [{}, {"groups": None}, {"realm_access": {}}, {"realm_access": {"roles": None}}],
    ids=str,
)
def test_a_missing_claim_of_groups_is_refused_where_roles_follow_from_it(claims: Claims):
    claim = "realm_access.roles" if "realm_access" in claims else "groups"
    with pytest.raises(IdentityIncomplete, match=f"sent no groups claim.*'{claim}'"):
        identity_of({**GOOD, **claims}, claim, needs_groups=True)
    assert identity_of({**GOOD, "groups": []}, "groups", needs_groups=True).groups == frozenset()


@pytest.mark.parametrize(
    "claims",
    [
        {"groups": [1]},
        {"groups": {"ml": True}},
        {"groups": [f"group {number}" for number in range(2_001)]},
        # As Entra ID tells that there are too many: taken for none, they would end memberships.
        {"_claim_names": {"groups": "src1"}, "_claim_sources": {"src1": {}}},
        {"sub": ""},
        {"sub": "x" * 256},
        {"sub": 7},
    ],
    ids=str,
)
def test_a_claim_of_another_form_is_refused(claims: Claims):
    with pytest.raises(IdentityRefused):
        identity_of({**GOOD, **claims}, "groups", needs_groups=False)


def test_an_address_is_verified_by_true_alone():
    for told in ("true", 1, None, False):
        claims = {**GOOD, "email": "lea@example.com", "email_verified": told}
        assert not identity_of(claims, "groups", needs_groups=False).email_verified
