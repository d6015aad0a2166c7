"""Verify an ID token: its signature first, then each of its claims, and read who it is about.

Authlib is imported when the first issuer is opened: it takes a third of a second and 11 MB, which
deployments without an issuer do not need. Not here: how a token is asked for (`oidc_issuer`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from app.domain.access.identity_rules import CLOCK_SKEW, GROUPS_MAX, SUBJECT_MAX, VerifiedIdentity
from app.ports.people.identity_provider import IdentityIncomplete, IdentityRefused

ALGORITHMS: Final = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519",
    "EdDSA",
)  # fmt: skip
"""Signatures with a key that only the issuer has. Neither "none", nor HS256 and its like, for which
a public key would do as the secret."""
_TOKEN_MAX: Final = 64_000
_AGAIN: Final = "Sign in once more; if that does not help, tell an admin of Lowtide."
_TEXT_MAX: Final = 500
_ABOUT: Final[Mapping[str, str]] = {
    "iss": "it is from another issuer",
    "aud": "it is for another program",
    "azp": "it is for another program",
    "exp": "it has expired, or the clocks of the issuer and Lowtide differ",
    "iat": "it is of the future: the clocks of the issuer and Lowtide differ",
    "nbf": "it is of the future: the clocks of the issuer and Lowtide differ",
    "nonce": "it answers another sign-in",
    "at_hash": "it came with another token",
    "sub": "it names nobody",
}

KeysOf = Callable[[str | None], list[dict[str, Any]]]
"""The issuer's keys, which are read again where none has this id."""


def verified_claims(
    token: str,
    keys_of: KeysOf,
    *,
    issuer: str,
    client_id: str,
    nonce: str,
    access_token: str | None,
    now: datetime,
) -> Mapping[str, Any]:
    """The claims of a token. Raises IdentityRefused where anything about it is not as it must be,
    and what `keys_of` raises.
    """
    from authlib.oidc.core import CodeIDToken
    from joserfc import jws, jwt
    from joserfc.errors import ClaimError, JoseError
    from joserfc.jwk import KeySet

    if len(token) > _TOKEN_MAX:
        raise _refused("its token is too long")
    try:
        header = jws.extract_compact(token.encode("ascii", "replace")).headers()
        if header.get("alg") not in ALGORITHMS:
            raise _refused(f"its token is signed by {str(header.get('alg'))[:20]!r}")
        key_id = header.get("kid")
        if key_id is not None and not isinstance(key_id, str):
            raise _refused("its token names no key")
        keys: Any = {"keys": [one for one in keys_of(key_id) if one.get("kty") != "oct"]}
        read = jwt.decode(token, KeySet.import_key_set(keys), algorithms=list(ALGORITHMS))
    except (JoseError, ValueError, TypeError, KeyError) as error:
        raise _refused(f"its signature is not good ({type(error).__name__})") from error
    claims = CodeIDToken(
        read.claims,
        read.header,
        options={
            "iss": {"essential": True, "value": issuer},
            "aud": {"essential": True, "value": client_id},
        },
        params={"nonce": nonce, "client_id": client_id, "access_token": access_token},
    )
    try:
        claims.validate(int(now.timestamp()), int(CLOCK_SKEW.total_seconds()))
    except ClaimError as error:
        about = _ABOUT.get(error.claim, f"of its claim {error.claim[:40]!r}")
        raise _refused(about) from error
    except (JoseError, ValueError, TypeError) as error:
        raise _refused(f"a claim has another form ({type(error).__name__})") from error
    return dict(claims)


def identity_of(
    claims: Mapping[str, Any], groups_claim: str, *, needs_groups: bool
) -> VerifiedIdentity:
    """Who verified claims are about. needs_groups: whether the claim of groups must be there.

    Raises IdentityRefused for a claim of another form, and IdentityIncomplete where the claim of
    groups is missing, or the groups were too many for the token.
    """
    subject = claims.get("sub")
    if not isinstance(subject, str) or not 1 <= len(subject) <= SUBJECT_MAX or "\0" in subject:
        raise _refused(_ABOUT["sub"])
    email = claims.get("email")
    names = [claims.get("preferred_username"), claims.get("name"), email]
    return VerifiedIdentity(
        issuer=str(claims["iss"]),
        subject=subject,
        names=tuple(one[:_TEXT_MAX] for one in names if isinstance(one, str)),
        email=email if isinstance(email, str) and len(email) <= _TEXT_MAX else None,
        # Some issuers write "true", which is no promise.
        email_verified=claims.get("email_verified") is True,
        groups=_groups(claims, groups_claim, needs_groups=needs_groups),
    )


def _groups(claims: Mapping[str, Any], groups_claim: str, *, needs_groups: bool) -> frozenset[str]:
    """A claim that is missing and needed says nothing: taken for no group, it would end
    memberships of everybody whose issuer has it elsewhere.
    """
    elsewhere = claims.get("_claim_names")
    if isinstance(elsewhere, Mapping) and groups_claim in elsewhere:
        raise IdentityIncomplete(
            "The issuer left your groups out of its token, as they are too many. An admin of the "
            "issuer can have it send only the groups that are assigned to Lowtide."
        )
    found: object = claims
    if groups_claim in claims:
        found = claims[groups_claim]
    else:
        # As Keycloak's `realm_access.roles`.
        for part in groups_claim.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
    if found is None and needs_groups:
        raise IdentityIncomplete(
            f"The issuer sent no groups claim: its ID token has no {groups_claim[:40]!r}, from "
            "which Lowtide takes roles. Nothing was changed. Ask the operator of the issuer to put "
            "the claim into the ID token; userinfo is not read. Until then, sign in with a key."
        )
    if found is None:
        return frozenset()
    groups = [found] if isinstance(found, str) else found
    if (
        not isinstance(groups, list)
        or len(groups) > GROUPS_MAX
        or not all(isinstance(one, str) for one in groups)
    ):
        raise _refused(f"its claim {groups_claim[:40]!r} is no list of groups")
    return frozenset(groups)


def _refused(reason: str) -> IdentityRefused:
    return IdentityRefused(f"The issuer's answer cannot be used: {reason}. {_AGAIN}")


def token_in(answer: Mapping[str, Any]) -> str:
    """The ID token of a token endpoint's answer. Raises IdentityRefused."""
    token = answer.get("id_token")
    if not isinstance(token, str):
        raise _refused("it holds no ID token; the scope `openid` may be missing")
    return token
