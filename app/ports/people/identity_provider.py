"""What vouches for people who sign in elsewhere: an OpenID Connect issuer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from app.domain.access.identity_rules import IssuerRules, VerifiedIdentity


class IdentityRefused(Exception):
    """The issuer's word is none, or is not for us; the message says what, and what to do."""


class IdentityIncomplete(IdentityRefused):
    """The issuer's word is good, and leaves out what roles are read from: no attempt to get in."""


class IdentityProviderAway(Exception):
    """The issuer gave no answer that can be used, so nothing is known of the person."""


@dataclass(frozen=True)
class SignInSecrets:
    """What ties an answer to the question, of one sign-in alone. verifier: the secret of PKCE."""

    state: str
    nonce: str = field(repr=False)
    verifier: str = field(repr=False)


class IdentityProvider(Protocol):
    """One issuer. Thread-safe; every call has a time limit."""

    @property
    def rules(self) -> IssuerRules:
        """What is believed of it."""
        ...

    def sign_in_address(self, secrets: SignInSecrets) -> str:
        """Where the browser goes to sign in. Raises IdentityProviderAway."""
        ...

    def identity(self, secrets: SignInSecrets, code: str) -> VerifiedIdentity:
        """Who has come back with this code, which is worth nothing afterwards.

        Raises IdentityRefused and IdentityProviderAway.
        """
        ...
