"""How long sessions, confirmed logins and their keys live, and how often one may try to sign in.

Not here: keys that people make (`key_rules`), or invitations (`person_rules`).
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final

from app.domain.deployment.credentials import digest

SESSION_LIFE: Final = timedelta(days=7)
"""However it is used."""
ISSUER_SESSION_LIFE: Final = timedelta(hours=12)
"""Of a session that an issuer's word has begun: groups are read again with the next one."""
SESSION_IDLE: Final = timedelta(days=1)
"""Without a request, a session ends before its life does."""
SEEN_RECORDED_EVERY: Final = timedelta(minutes=5)
"""A session's last request is stored at most so often: a write per request would be most of it."""

LOGIN_LIFE: Final = timedelta(minutes=10)
LOGIN_TRIES_MAX: Final = 5
LOGIN_KEY_LIFE: Final = timedelta(days=30)
CODE_LETTERS: Final = "CDFHJKLMNPQRTVWX3479"
"""No vowels, which would make words, and nothing that looks like something else: of B and 8, G and
6, S and 5, Z and 2, I and 1, O and 0 neither.
"""
CODE_LENGTH: Final = 8

_IPV6_PREFIX: Final = 64
"""What one subscriber has: within it, another address costs nothing."""


@dataclass(frozen=True, slots=True)
class AttemptLimit:
    """So many failed attempts within a window; then none until the window has passed."""

    failures: int
    window: timedelta


PER_ADDRESS: Final = AttemptLimit(30, timedelta(minutes=15))
PER_ACCOUNT: Final = AttemptLimit(10, timedelta(minutes=15))


class AttemptKind(StrEnum):
    """What is tried. Each has counts of its own, so that who tries one does not close the others
    to everybody behind the same address. Values are stored.
    """

    SIGN_IN = "address"
    INVITATION = "invitation"
    LOGIN = "login"
    ISSUER = "issuer"


def address_subject(kind: AttemptKind, address: str) -> str:
    """What attempts from an address are counted by: of IPv6 its /64."""
    found = _address(address)
    if found is None:
        return f"{kind}:unknown"
    if isinstance(found, ipaddress.IPv6Address):
        found_net = ipaddress.ip_network((int(found), _IPV6_PREFIX), strict=False)
        return f"{kind}:{found_net}"
    return f"{kind}:{found}"


def code_of(token: str) -> str:
    """A code to be read and typed, from a token that nobody knows."""
    number, letters = int(digest(token), 16), []
    for _ in range(CODE_LENGTH):
        number, place = divmod(number, len(CODE_LETTERS))
        letters.append(CODE_LETTERS[place])
    return "".join(letters)


def read_code(written: str) -> str:
    """A code as it was made, from one that was typed."""
    return "".join(letter for letter in written.upper() if letter.isalnum())


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address, one of IPv4 also where it is written as one of IPv6; None for no address."""
    try:
        found = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found
