"""The token endpoint of the fake cloud, and a service account's key for it.

Source: "Using OAuth 2.0 for Server to Server Applications", JWT error codes. Not here: who is
allowed what.
"""

from __future__ import annotations

import base64
import functools
import json
from typing import Any
from urllib.parse import parse_qs

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

PATH = "/token"
_SKEW_SECONDS = 300
_BAD_TIME = (
    "Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable timeframe. "
    "Check your iat and exp values in the JWT claim."
)


def answer_token(form: bytes, now: float) -> tuple[int, Any]:
    """Status and document for an assertion; its times are checked, its signature is not."""
    if not _is_in_time(parse_qs(form.decode())["assertion"][0], now):
        return 400, {"error": "invalid_grant", "error_description": _BAD_TIME}
    return 200, {"access_token": "fake", "expires_in": 3_599, "token_type": "Bearer"}


def is_accepted(authorization: str | None, now: float) -> bool:
    """Whether a call's signature is: a token of ours, none, or a JWT that the caller signed.

    Compute Engine's client signs its own (`always_use_jwt_access` of its transport), and asks the
    token endpoint for nothing.
    """
    token = (authorization or "").removeprefix("Bearer ")
    return "." not in token or _is_in_time(token, now)


def _is_in_time(token: str, now: float) -> bool:
    claims = token.split(".")[1]
    told = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
    early = told["iat"] > now + _SKEW_SECONDS
    return not early and told["exp"] >= now - _SKEW_SECONDS


@functools.cache
def _private_key() -> str:
    key = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()


def service_account_key(endpoint: str) -> dict[str, str]:
    """A key file's content whose tokens come from the fake."""
    return {
        "type": "service_account",
        "project_id": "test-project",
        "private_key_id": "1",
        "private_key": _private_key(),
        "client_email": "lowtide@test-project.iam.gserviceaccount.com",
        "token_uri": f"{endpoint}{PATH}",
    }
