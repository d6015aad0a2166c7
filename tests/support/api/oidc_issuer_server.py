"""An issuer of OpenID Connect on loopback, with real keys, that also forges what a test asks for.

Not here: the pages that it sends browsers back to, which a test opens itself.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit
from uuid import uuid4

import httpx
from joserfc import jwt
from joserfc.jwk import ECKey

from tests.support.api.invited_people import Browser
from tests.support.servers.http_server import HttpServer, QuietHandler

CLIENT, SECRET = "lowtide", "client secret of the tests"
ALGORITHM = "ES256"
Claims = dict[str, Any]


def new_key(key_id: str) -> ECKey:
    return ECKey.generate_key("P-256", {"kid": key_id}, private=True)


def signed(key: ECKey, claims: Mapping[str, Any], **header: str) -> str:
    return jwt.encode({"alg": ALGORITHM, "kid": key.kid or "", **header}, dict(claims), key)


def good_claims(issuer: str, **other: Any) -> Claims:
    """Of a token that is good now, but for its nonce."""
    now = int(time.time())
    made = {"iss": issuer, "sub": "lea-1", "aud": CLIENT, "iat": now, "exp": now + 300}
    return {**made, **other}


@dataclass
class Account:
    """Who sits before the browser at the issuer."""

    subject: str
    claims: Claims = field(default_factory=dict)


@dataclass
class _Code:
    account: Account
    nonce: str
    challenge: str
    redirect_uri: str


class IssuerServer:
    """Its address is `url`. `forge` changes the claims of the next tokens; `sign` signs them."""

    def __init__(self) -> None:
        self.key = new_key("first")
        self.forge: Callable[[Claims], Claims] = dict
        self.sign: Callable[[Claims], str] = lambda claims: signed(self.key, claims)
        self.is_away = False
        self.published_keys = [self.key]
        self.reads: list[str] = []
        self._codes: dict[str, _Code] = {}
        self._server = HttpServer(self._handler())
        self.url = self._server.url

    def as_usual(self) -> None:
        """Forge nothing any more."""
        self.forge, self.is_away = dict, False

    def close(self) -> None:
        self._server.close()

    def answer_to(self, address: str, account: Account) -> str:
        """The query with which the browser comes back, once the account has signed in there."""
        parts = urlsplit(address)
        assert f"{parts.scheme}://{parts.netloc}{parts.path}" == f"{self.url}/authorize"
        asked = dict(parse_qsl(parts.query))
        assert asked["response_type"] == "code"
        assert asked["client_id"] == CLIENT
        assert asked["code_challenge_method"] == "S256"
        assert "openid" in asked["scope"].split()
        code = uuid4().hex
        self._codes[code] = _Code(
            account, asked["nonce"], asked["code_challenge"], asked["redirect_uri"]
        )
        return urlencode({"code": code, "state": asked["state"], "iss": self.url})

    def _handler(self) -> type[QuietHandler]:
        issuer = self

        class Handler(QuietHandler):
            def serve(self) -> None:
                issuer.reads.append(self.path)
                status, document = issuer._answer(self)
                content = json.dumps(document).encode()
                self.answer(status, content, {"Content-Type": "application/json"})

        return Handler

    def _answer(self, request: QuietHandler) -> tuple[int, Any]:
        body = request.body()
        if self.is_away:
            return 503, {}
        match request.path:
            case "/.well-known/openid-configuration":
                return 200, {
                    "issuer": self.url,
                    "authorization_endpoint": f"{self.url}/authorize",
                    "token_endpoint": f"{self.url}/token",
                    "jwks_uri": f"{self.url}/keys",
                }
            case "/keys":
                return 200, {"keys": [key.as_dict(private=False) for key in self.published_keys]}
            case "/token":
                return self._token(request.headers["Authorization"] or "", body.decode())
        return 404, {}

    def _token(self, authorization: str, body: str) -> tuple[int, Any]:
        given = base64.b64decode(authorization.removeprefix("Basic ")).decode()
        if given != f"{CLIENT}:{SECRET}":
            return 401, {"error": "invalid_client"}
        form = {name: values[0] for name, values in parse_qs(body).items()}
        code = self._codes.pop(form["code"], None)
        verifier = form.get("code_verifier", "")
        digest = base64.urlsafe_b64encode(sha256(verifier.encode()).digest())
        if (
            code is None
            or form["redirect_uri"] != code.redirect_uri
            or digest.decode().rstrip("=") != code.challenge
        ):
            return 400, {"error": "invalid_grant"}
        claims = good_claims(
            self.url, sub=code.account.subject, nonce=code.nonce, **code.account.claims
        )
        token = self.sign(self.forge(claims))
        return 200, {"access_token": uuid4().hex, "token_type": "Bearer", "id_token": token}


@contextmanager
def issuer_server() -> Iterator[IssuerServer]:
    """An issuer to the end of the block."""
    server = IssuerServer()
    try:
        yield server
    finally:
        server.close()


def begin_at(browser: Browser, issuer: str = "corp", next_path: str = "") -> str:
    """The address at the issuer that the browser is sent to."""
    query = f"?{urlencode({'next': next_path})}" if next_path else ""
    answer = browser.get(f"/sign-in/oidc/{issuer}{query}")
    assert answer.status_code == 303, answer.text
    return answer.headers["location"]


def come_back(browser: Browser, query: str, issuer: str = "corp") -> httpx.Response:
    return browser.get(f"/sign-in/oidc/{issuer}/callback?{query}")


def sign_in_at(
    server: IssuerServer, browser: Browser, account: Account, next_path: str = ""
) -> httpx.Response:
    """The whole way: to the issuer, and back."""
    address = begin_at(browser, next_path=next_path)
    return come_back(browser, server.answer_to(address, account))
