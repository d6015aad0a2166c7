"""What an API key looks like, and the bounds of its life.

Not here: who may make one (`roles`), or its digest (`deployment.credentials`).
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Final

from app.domain.access.roles import GRANTABLE_BY, Role, within
from app.domain.units.errors import Forbidden, InvalidValue

KEY_PREFIX: Final = "lt_"
"""Lets people, and scanners for leaked secrets, recognise a key."""
SHOWN_CHARACTERS: Final = 7
"""How much of a key is stored and shown, to tell keys apart: 24 of its 256 random bits."""
LIFE_MAX: Final = timedelta(days=365)
KEYS_OF_PERSON_MAX: Final = 50
"""Good ones: nobody looks after more."""
PROJECTS_OF_KEY_MAX: Final = 50
MOST_IN_PROJECTS: Final = Role.MAINTAINER
"""The most that a key may be which names its projects: admins and auditors are that in all."""
OVERLAP_MAX: Final = timedelta(days=7)
USE_RECORDED_EVERY: Final = timedelta(minutes=1)
"""A key's last use is stored at most so often: a write per request would be most of its cost."""

_KEY: Final = re.compile(r"lt_[A-Za-z0-9_-]{43}", re.ASCII)
_BEGINNING: Final = re.compile(r"lt_[A-Za-z0-9_-]{0,4}", re.ASCII)
_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)


def is_key(text: str) -> bool:
    """Whether a text has the form of a key."""
    return _KEY.fullmatch(text) is not None


def beginning_of(text: str) -> str:
    """What is shown of a text that was sent as a key, as far as it could be one; "" where it does
    not begin like one, for it may be a password.
    """
    found = _BEGINNING.match(text)
    return found[0] if found else ""


def require_name(name: str, noun: str) -> None:
    """Raises InvalidValue for what cannot name a key or a project: the rule for a job's name, as a
    spec names its project.
    """
    if _NAME.fullmatch(name) is None:
        raise InvalidValue(
            f"name: {name[:80]!r} cannot name a {noun}: use 1 to 63 lower-case letters, digits and "
            "hyphens, with no hyphen at either end",
            "name",
        )


def expiry_of(life_seconds: float | None, now: datetime) -> datetime | None:
    """When a key ends that lives so long from now; None for one without an end.

    Raises InvalidValue outside of one second to a year.
    """
    if life_seconds is None:
        return None
    if not 1 <= life_seconds <= LIFE_MAX.total_seconds():
        raise InvalidValue("expires_in: write from 1s to 365d", "expires_in")
    return now + timedelta(seconds=life_seconds)


def require_within_projects(role: Role) -> None:
    """Raises InvalidValue for a role that a key cannot have which names its projects."""
    if within(role, MOST_IN_PROJECTS) is not role:
        raise InvalidValue(
            f"projects: the role {role} is one of the whole deployment; leave the projects out, or "
            f"make the key a {MOST_IN_PROJECTS}'s or less",
            "projects",
        )


def require_grantable(granting: Role, granted: Role) -> None:
    """Raises Forbidden where a key of one role may not make, change or revoke one of another."""
    allowed = GRANTABLE_BY.get(granting, frozenset())
    if granted not in allowed:
        names = ", ".join(role for role in Role if role in allowed)
        raise Forbidden(
            f"The role {granting} manages keys and members with the roles {names}, not {granted}."
        )
