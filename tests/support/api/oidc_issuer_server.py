"""An issuer of OpenID Connect on loopback, with real keys, that also forges what a test asks for.

It refuses what RFC 6749, RFC 7636 and OpenID Connect Core 1.0 tell an issuer to refuse. Not here:
the pages that it sends browsers back to, which a test opens itself.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qsl, unquote_plus, urlencode, urlsplit
from uuid import uuid4

import httpx
from joserfc import jwt
from joserfc.jwk import ECKey

from tests.support.api.invited_people import Browser
from tests.support.servers.http_server import HttpServer, QuietHandler

CLIENT = "lowtide"
SECRET = "client+secret of 100%: the tests"
"""With the characters that a Basic header needs encoded (RFC 6749, section 2.3.1)."""
PUBLIC_URL = "http://127.0.0.1:8000"
REDIRECT = f"{PUBLIC_URL}/sign-in/oidc/corp/callback"
ALGORITHM = "ES256"
FORM = "application/x-www-form-urlencoded"
# RFC 7636, sections 4.1 and 4.2: of a verifier, and of its SHA-256.
_VERIFIER = re.compile(r"[A-Za-z0-9._~-]{43,128}", re.ASCII)
_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}", re.ASCII)
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


class Refused(Exception):
    """What the issuer does not do. error: its code (RFC 6749, sections 4.1.2.1 and 5.2)."""

    def __init__(self, error: str, status: int = 400) -> None:
        super().__init__(error)
        self.error = error
        self.status = status


@dataclass(frozen=True)
class Client:
    """A program as it is registered. secret: None for a public client."""

    secret: str | None
    redirects: frozenset[str] = frozenset({REDIRECT})


@dataclass
class _Code:
    client: str
    account: Account
    nonce: str
    challenge: str
    redirect_uri: str


class IssuerServer:
    """Its address is `url`. `forge` changes the claims of the next tokens; `sign` signs them.

    clients: by id. auth_methods: how they prove who they are at the token endpoint. published:
    what it says of itself otherwise. moved_to: where its token endpoint redirects to.
    """

    def __init__(self) -> None:
        self.key = new_key("first")
        self.sign: Callable[[Claims], str] = lambda claims: signed(self.key, claims)
        self.published_keys = [self.key]
        self.published: dict[str, Any] = {}
        self.moved_to: str | None = None
        self.as_usual()
        self.reads: list[str] = []
        self._codes: dict[str, _Code] = {}
        self._server = HttpServer(self._handler())
        self.url = self._server.url

    def as_usual(self) -> None:
        """Forge nothing any more, and know Lowtide alone."""
        self.forge: Callable[[Claims], Claims] = dict
        self.is_away = False
        self.clients = {CLIENT: Client(SECRET)}
        self.auth_methods = ["client_secret_basic"]
        self.published, self.moved_to = {}, None

    def close(self) -> None:
        self._server.close()

    def answer_to(self, address: str, account: Account) -> str:
        """The query with which the browser comes back, once the account has signed in there.

        Raises Refused where a browser is not to be sent back (RFC 6749, section 4.1.2.1).
        """
        parts = urlsplit(address)
        assert f"{parts.scheme}://{parts.netloc}{parts.path}" == f"{self.url}/authorize"
        asked = _once(parts.query)
        client = self.clients.get(asked.get("client_id", ""))
        # OpenID Connect Core, section 3.1.2.1: it must be one that is registered, letter by letter.
        if client is None or asked.get("redirect_uri") not in client.redirects:
            raise Refused("unauthorized_client")
        back = {"state": asked["state"], "iss": self.url}
        error = _error_of(asked)
        if error is not None:
            return urlencode({"error": error, **back})
        code = uuid4().hex
        self._codes[code] = _Code(
            asked["client_id"], account, asked["nonce"], asked["code_challenge"],
            asked["redirect_uri"],
        )  # fmt: skip
        return urlencode({"code": code, **back})

    def _handler(self) -> type[QuietHandler]:
        issuer = self

        class Handler(QuietHandler):
            def serve(self) -> None:
                issuer.reads.append(self.path)
                status, document = issuer._answer(self)
                headers = {"Content-Type": "application/json", "Cache-Control": "no-store"}
                if status == 401:
                    headers["WWW-Authenticate"] = "Basic"
                if status == 307 and issuer.moved_to is not None:
                    headers["Location"] = issuer.moved_to
                self.answer(status, json.dumps(document).encode(), headers)

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
                    "response_types_supported": ["code"],
                    "subject_types_supported": ["public"],
                    "id_token_signing_alg_values_supported": [ALGORITHM],
                    "token_endpoint_auth_methods_supported": self.auth_methods,
                    **self.published,
                }
            case "/keys":
                return 200, {"keys": [key.as_dict(private=False) for key in self.published_keys]}
            case "/token" if self.moved_to is not None:
                return 307, None
            case "/token":
                try:
                    return 200, self._token(request, body.decode())
                except Refused as refused:
                    return refused.status, {"error": refused.error}
        return 404, {}

    def _token(self, request: QuietHandler, body: str) -> dict[str, str]:
        # RFC 6749, sections 3.2 and 4.1.3.
        if request.command != "POST" or request.headers.get_content_type() != FORM:
            raise Refused("invalid_request")
        form = _once(body)
        client = self._client(request.headers["Authorization"], form)
        if form.get("grant_type") != "authorization_code":
            raise Refused("unsupported_grant_type")
        # Section 4.1.2: a code is used once, by the client that it was given to.
        code = self._codes.pop(form.get("code", ""), None)
        verifier = form.get("code_verifier", "")
        digest = base64.urlsafe_b64encode(sha256(verifier.encode()).digest())
        if (
            code is None
            or code.client != client
            or form.get("redirect_uri") != code.redirect_uri
            # RFC 7636, section 4.6.
            or _VERIFIER.fullmatch(verifier) is None
            or digest.decode().rstrip("=") != code.challenge
        ):
            raise Refused("invalid_grant")
        told = {"sub": code.account.subject, "aud": client, "nonce": code.nonce}
        token = self.sign(self.forge(good_claims(self.url, **told, **code.account.claims)))
        return {"access_token": uuid4().hex, "token_type": "Bearer", "id_token": token}

    def _client(self, authorization: str | None, form: Mapping[str, str]) -> str:
        """Which client asks, by one method that is published (RFC 6749, section 2.3)."""
        name, secret, method = form.get("client_id", ""), form.get("client_secret"), "none"
        if authorization is not None:
            if secret is not None:
                raise Refused("invalid_request")
            name, secret = _basic(authorization)
            method = "client_secret_basic"
        elif secret is not None:
            method = "client_secret_post"
        client = self.clients.get(name)
        if client is None or method not in self.auth_methods or client.secret != secret:
            raise Refused("invalid_client", 401)
        return name


def _once(query: str) -> dict[str, str]:
    """The parameters, each of which may stand there once (RFC 6749, sections 3.1 and 3.2)."""
    pairs = parse_qsl(query)
    if len({name for name, _ in pairs}) < len(pairs):
        raise Refused("invalid_request")
    return dict(pairs)


def _error_of(asked: Mapping[str, str]) -> str | None:
    """What is wrong with a sign-in that is asked for; None for nothing."""
    if asked.get("response_type") != "code":
        return "unsupported_response_type"
    # OpenID Connect Core, section 3.1.2.1.
    if "openid" not in asked.get("scope", "").split():
        return "invalid_scope"
    # RFC 7636, section 4.4.1. A nonce is Lowtide's to send, although the code flow needs none.
    good = asked.get("code_challenge_method") == "S256" and asked.get("nonce")
    if not good or _CHALLENGE.fullmatch(asked.get("code_challenge", "")) is None:
        return "invalid_request"
    return None


def _basic(authorization: str) -> tuple[str, str]:
    """Id and secret of a Basic header, each encoded like a form (RFC 6749, section 2.3.1)."""
    scheme, _, encoded = authorization.partition(" ")
    try:
        text = base64.b64decode(encoded, validate=True).decode("ascii")
    except (binascii.Error, UnicodeDecodeError):
        raise Refused("invalid_client", 401) from None
    name, colon, secret = text.partition(":")
    if scheme.lower() != "basic" or not colon:
        raise Refused("invalid_client", 401)
    return unquote_plus(name), unquote_plus(secret)


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
