"""What a `lowtide login` and its page show of each other (PKCE, RFC 7636): for both ends.

Not here: the code that follows (`session_rules`), or what a confirmed login gives.
"""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Final

from app.domain.units.errors import InvalidValue

MACHINE_MAX: Final = 60
_NOT_OF_HOSTS: Final = re.compile(r"[^A-Za-z0-9.-]+", re.ASCII)
_CHALLENGE: Final = re.compile(r"[A-Za-z0-9_-]{43}", re.ASCII)


def challenge_of(verifier: str) -> str:
    """What a verifier is known by before it is told: its SHA-256 in URL-safe Base64."""
    hashed = hashlib.sha256(verifier.encode("utf-8", "replace")).digest()
    return base64.urlsafe_b64encode(hashed).rstrip(b"=").decode()


def require_challenge(challenge: str) -> None:
    """Raises InvalidValue for what is no challenge."""
    if _CHALLENGE.fullmatch(challenge) is None:
        raise InvalidValue(
            "challenge: this address is not whole; open the one that `lowtide login` prints",
            "challenge",
        )


def check_letters(challenge: str) -> str:
    """What the command and the page both show, for a person to compare."""
    return f"{challenge[:4]}-{challenge[4:8]}"


def machine_name(written: str) -> str:
    """What the command calls its machine, in the letters of a host's name alone: whoever sends
    somebody the page's address writes no sentence on it.
    """
    return _NOT_OF_HOSTS.sub("-", written).strip("-.")[:MACHINE_MAX] or "unknown"
