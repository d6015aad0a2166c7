"""What an issuer publishes: its addresses and its public keys, read when needed and kept an hour.

Not here: what is signed with the keys (`id_token`).
"""

from __future__ import annotations

import logging
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import httpx
import orjson

from app.adapters.oidc.issuer_addresses import require_safe
from app.ports.clock import Clock
from app.ports.people.identity_provider import IdentityProviderAway

log = logging.getLogger(__name__)

KEPT_FOR: Final = timedelta(hours=1)
KEYS_READ_EVERY: Final = timedelta(minutes=1)
"""An unknown key makes Lowtide read the keys again, and at most so often: tokens can be made up."""
_BYTES_MAX: Final = 1_000_000
_SECONDS_MAX: Final = timedelta(seconds=10)
_KEYS_MAX: Final = 100
_REASONS_MAX: Final = 10
_PATH: Final = "/.well-known/openid-configuration"


@dataclass(frozen=True)
class Endpoints:
    """Where an issuer is asked what. post_secret: it takes a client's secret in the body alone."""

    authorization: str
    token: str
    keys: str
    post_secret: bool


class Published:
    """Of one issuer. Thread-safe; who comes while it is read waits for the answer."""

    def __init__(self, issuer: str, client: httpx.Client, clock: Clock) -> None:
        self._issuer = issuer
        self._client = client
        self._clock = clock
        self._lock = threading.Lock()
        self._endpoints: tuple[datetime, Endpoints] | None = None
        self._keys: tuple[datetime, list[dict[str, Any]]] | None = None

    def endpoints(self) -> Endpoints:
        """Its addresses. Raises IdentityProviderAway where it tells none that can be used."""
        with self._lock:
            now = self._clock.now()
            if self._endpoints is None or _is_over(self._endpoints[0], KEPT_FOR, now):
                self._endpoints = now, self._read_endpoints()
            return self._endpoints[1]

    def keys(self, key_id: str | None) -> list[dict[str, Any]]:
        """Its public keys, as JWKs: read again where none has this id, as after a change of keys.

        Raises IdentityProviderAway.
        """
        address = self.endpoints().keys
        with self._lock:
            now = self._clock.now()
            if self._keys is not None:
                read_at, keys = self._keys
                # A token that names no key may be signed by one that is not read yet.
                known = key_id is not None and any(one.get("kid") == key_id for one in keys)
                if not _is_over(read_at, KEPT_FOR if known else KEYS_READ_EVERY, now):
                    return keys
            found = self._read(address).get("keys")
            if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
                raise self._away("its list of keys has another form")
            self._keys = now, found[:_KEYS_MAX]
            return self._keys[1]

    def _read_endpoints(self) -> Endpoints:
        document = self._read(self._issuer.rstrip("/") + _PATH)
        if document.get("issuer") != self._issuer:
            told = str(document.get("issuer"))[:200]
            raise self._away(f"it calls itself {told!r}; write it so in the file of issuers")
        names = ("authorization_endpoint", "token_endpoint", "jwks_uri")
        try:
            addresses = [require_safe(str(document.get(name))) for name in names]
        except ValueError as error:
            raise self._away(f"of what it tells, an address {error}") from None
        methods = document.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
        return Endpoints(
            addresses[0],
            addresses[1],
            addresses[2],
            "client_secret_basic" not in methods and "client_secret_post" in methods,
        )

    def _read(self, address: str) -> Mapping[str, Any]:
        """A JSON mapping, of at most 1 MB and ten seconds."""
        until = self._clock.now() + _SECONDS_MAX
        content = b""
        try:
            with self._client.stream("GET", address) as answer:
                if answer.status_code != httpx.codes.OK:
                    raise self._away(f"{address} answers {answer.status_code}")
                for part in answer.iter_bytes():
                    content += part
                    if len(content) > _BYTES_MAX or self._clock.now() > until:
                        raise self._away(f"{address} sends too much, or too slowly")
            document = orjson.loads(content)
        except httpx.HTTPError as error:
            raise self._away(f"{address} {_failure(error)}") from error
        except ValueError:
            raise self._away(f"{address} sends no JSON") from None
        if not isinstance(document, dict):
            raise self._away(f"{address} sends no JSON mapping")
        return document

    def _away(self, reason: str) -> IdentityProviderAway:
        log.warning("issuer %s: %s", self._issuer, reason)
        return IdentityProviderAway(reason)


def _failure(error: BaseException) -> str:
    """What an address did. An authority of one's own is the usual reason of a first failure, and
    httpx calls it a ConnectError as any other, so the reason below it is looked up.
    """
    below: BaseException | None = error
    for _ in range(_REASONS_MAX):
        if isinstance(below, ssl.SSLCertVerificationError):
            return f"shows a certificate that is not trusted ({below.verify_message})"
        below = None if below is None else below.__cause__ or below.__context__
    return f"does not answer ({type(error).__name__})"


def _is_over(read_at: datetime, life: timedelta, now: datetime) -> bool:
    """A reading of the future, as after a clock was set back, is over, too."""
    return not read_at <= now < read_at + life
