"""What another party's word about a person is worth: its groups, its address, its names.

Here: rules for a sign-in by OpenID Connect, once the word is verified. Not here: how it is verified
(`app.adapters.oidc`), or what is stored of it (`app.orchestration.access.sign_in_identity`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from itertools import count, islice
from typing import Final

from app.domain.access.person_rules import NAME_MAX, read_name
from app.domain.access.roles import Role
from app.domain.units.errors import InvalidValue

SIGN_IN_LIFE: Final = timedelta(minutes=10)
"""From the redirect to the issuer until the browser is back."""
CLOCK_SKEW: Final = timedelta(seconds=60)
SUBJECT_MAX: Final = 255
GROUPS_MAX: Final = 2_000
ISSUER_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?", re.ASCII)

_NAMES_MAX: Final = 100
_LAST_RESORT: Final = "person"
_RANK: Final = (Role.ADMIN, Role.MAINTAINER, Role.SUBMITTER, Role.AUDITOR, Role.VIEWER)


@dataclass(frozen=True)
class IssuerRules:
    """What is believed of one issuer. name: in addresses. label: on its button.

    groups: group -> project -> role. email_domains: lower case; an address in any other one says
    nothing about who its owner is.
    """

    name: str
    label: str
    issuer: str
    groups: Mapping[str, Mapping[str, Role]]
    email_domains: frozenset[str] = frozenset()


@dataclass(frozen=True)
class VerifiedIdentity:
    """Who signed in at an issuer, as its signed token says. subject: never given to another.

    names: what to call the person, the best first.
    """

    issuer: str
    subject: str
    names: tuple[str, ...] = ()
    email: str | None = None
    email_verified: bool = False
    groups: frozenset[str] = frozenset()


def roles_by_groups(rules: IssuerRules, identity: VerifiedIdentity) -> dict[str, Role]:
    """The role in each project, by its name. Of several, the first of admin, maintainer, submitter,
    auditor and viewer.
    """
    found: dict[str, Role] = {}
    for group in sorted(identity.groups):
        for project, role in rules.groups.get(group, {}).items():
            found[project] = min(role, found.get(project, role), key=_RANK.index)
    return found


def trusted_email(rules: IssuerRules, identity: VerifiedIdentity) -> str | None:
    """The address by which the person may be known already; None for one that is not verified, or
    of a domain that the issuer does not speak for.
    """
    email = (identity.email or "").strip().casefold()
    mailbox, _, domain = email.rpartition("@")
    is_ours = bool(mailbox) and domain in rules.email_domains
    return email if identity.email_verified and is_ours else None


def names_to_try(identity: VerifiedIdentity) -> Iterator[str]:
    """Names for a new person, each as it is stored: those that the issuer has, then the best of
    them with a number. At most a hundred.
    """
    good = []
    for written in identity.names:
        try:
            good.append(read_name(written))
        except InvalidValue:
            continue
    good = good or [_LAST_RESORT]
    numbered = (f"{good[0][: NAME_MAX - 4]} {number}" for number in count(2))
    yield from islice((name for names in (good, numbered) for name in names), _NAMES_MAX)
