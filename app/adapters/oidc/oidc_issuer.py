"""An issuer of OpenID Connect: the way to its page, and what it says of who comes back.

The authorization code flow with PKCE, by Authlib. Calls have time limits, and few are made at once,
so that a slow issuer does not take the threads that serve everybody else.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import quote_plus

import httpx

from app.adapters.oidc.configured_issuers import configured_issuers
from app.adapters.oidc.id_token import identity_of, token_in, verified_claims
from app.adapters.oidc.issuers_file import IssuerEntry
from app.adapters.oidc.oidc_variables import OidcVariables
from app.adapters.oidc.published import Published
from app.domain.access.identity_rules import IssuerRules, VerifiedIdentity
from app.ports.clock import Clock
from app.ports.people.identity_provider import IdentityProviderAway, IdentityRefused, SignInSecrets

log = logging.getLogger(__name__)

_TIMEOUT: Final = httpx.Timeout(5.0)
_CALLS_AT_ONCE: Final = 4
_AGAIN: Final = "Start again from the sign-in page."


class OidcIssuer:
    """Implements `app.ports.people.identity_provider.IdentityProvider`."""

    def __init__(
        self, entry: IssuerEntry, secret: str | None, redirect_address: str, clock: Clock
    ) -> None:
        """redirect_address: where the issuer sends browsers back to, as it is registered there."""
        self._entry = entry
        self._secret = secret
        self._redirect_address = redirect_address
        self._clock = clock
        # It follows no redirect: the secret is for the address that was checked.
        self._client = httpx.Client(timeout=_TIMEOUT, follow_redirects=False)
        self._published = Published(entry.issuer, self._client, clock)
        self._turns = threading.BoundedSemaphore(_CALLS_AT_ONCE)

    @property
    def rules(self) -> IssuerRules:
        """What is believed of it."""
        return self._entry.rules

    def sign_in_address(self, secrets: SignInSecrets) -> str:
        """Where the browser goes to sign in. Raises IdentityProviderAway."""
        with self._turn():
            endpoints = self._published.endpoints()
        address, _ = self._authlib().create_authorization_url(
            endpoints.authorization,
            state=secrets.state,
            nonce=secrets.nonce,
            code_verifier=secrets.verifier,
        )
        return str(address)

    def identity(self, secrets: SignInSecrets, code: str) -> VerifiedIdentity:
        """Who has come back with this code. Raises IdentityRefused and IdentityProviderAway."""
        with self._turn():
            answer = self._token_for(secrets, code)
            try:
                return self._identity_in(answer, secrets)
            except IdentityRefused as refused:
                log.warning("issuer %s: a sign-in is refused: %s", self._entry.issuer, refused)
                raise

    def close(self) -> None:
        """Close its connections."""
        self._client.close()

    def _identity_in(self, answer: Mapping[str, Any], secrets: SignInSecrets) -> VerifiedIdentity:
        access_token = answer.get("access_token")
        claims = verified_claims(
            token_in(answer),
            self._published.keys,
            issuer=self._entry.issuer,
            client_id=self._entry.client_id,
            nonce=secrets.nonce,
            access_token=access_token if isinstance(access_token, str) else None,
            now=self._clock.now(),
        )
        return identity_of(
            claims, self._entry.groups_claim, needs_groups=self._entry.needs_groups_claim
        )

    def _token_for(self, secrets: SignInSecrets, code: str) -> Mapping[str, Any]:
        """What the token endpoint gives for a code, which it takes once."""
        from authlib.oauth2.auth import ClientAuth
        from authlib.oauth2.base import OAuth2Error

        endpoints = self._published.endpoints()
        method = "client_secret_post" if endpoints.post_secret else "client_secret_basic"
        if self._secret is None:
            method = "none"
        name, secret = self._entry.client_id, self._secret
        if secret is not None and method == "client_secret_basic":
            # Encoded like a form (RFC 6749, section 2.3.1), which Authlib leaves to its caller.
            name, secret = quote_plus(name), quote_plus(secret)
        client = ClientAuth(name, secret, method)
        try:
            answer: Mapping[str, Any] = self._authlib().fetch_token(
                endpoints.token,
                grant_type="authorization_code",
                code=code,
                code_verifier=secrets.verifier,
                auth=_proof_of(client),
            )
        except OAuth2Error as error:
            reason = "".join(one for one in str(error.error) if one.isalnum() or one == "_")[:40]
            log.warning("issuer %s refuses a code: %s", self._entry.issuer, reason)
            if reason == "invalid_grant":
                raise IdentityRefused(
                    f"The issuer does not take this sign-in's code, or not any more. {_AGAIN}"
                ) from None
            raise IdentityProviderAway(f"it refuses Lowtide itself ({reason})") from None
        except (httpx.HTTPError, ValueError) as error:
            log.warning("issuer %s gives no token: %s", self._entry.issuer, type(error).__name__)
            raise IdentityProviderAway("it gives no token") from None
        return answer

    def _authlib(self) -> Any:
        from authlib.oauth2.client import OAuth2Client

        return OAuth2Client(
            self._client,
            client_id=self._entry.client_id,
            client_secret=self._secret,
            scope=" ".join(self._entry.scopes),
            redirect_uri=self._redirect_address,
            code_challenge_method="S256",
        )

    @contextmanager
    def _turn(self) -> Iterator[None]:
        if not self._turns.acquire(timeout=_TIMEOUT.read):
            raise IdentityProviderAway("it is slow, and others wait for it already")
        try:
            yield
        finally:
            self._turns.release()


def _proof_of(client: Any) -> Callable[[httpx.Request], httpx.Request]:
    """How Authlib proves who the client is, as httpx takes it."""

    def proven(request: httpx.Request) -> httpx.Request:
        headers = dict(request.headers.items())
        address, headers, body = client.prepare(
            request.method, str(request.url), headers, request.content.decode()
        )
        headers.pop("content-length", None)
        return httpx.Request(
            request.method, address, headers=headers, content=body, extensions=request.extensions
        )

    return proven


def open_issuers(settings: OidcVariables, own_address: str, clock: Clock) -> dict[str, OidcIssuer]:
    """The issuers of the settings' file by name; none without a file. Asks no issuer yet.

    own_address: where browsers reach Lowtide. Raises IssuersFileError, which names the variable.
    """
    opened = {}
    for found in configured_issuers(settings, own_address):
        name = found.entry.name
        back = f"{own_address}/sign-in/oidc/{name}/callback"
        opened[name] = OidcIssuer(found.entry, found.secret, back, clock)
    return opened
