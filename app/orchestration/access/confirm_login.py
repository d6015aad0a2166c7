"""A `lowtide login` that waits: a person confirms it in the browser, and a code gives it its key.

The command alone has the verifier whose SHA-256 is the challenge (PKCE, RFC 7636), so neither the
address of the page nor the code is worth anything to others. Not here: the page (`app.web.access`)
or the command (`app.cli.access.browser_login`).
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

from app.domain.access.key_rules import MOST_IN_PROJECTS
from app.domain.access.login_challenge import challenge_of, machine_name, require_challenge
from app.domain.access.principal import Origin, Person, Principal
from app.domain.access.roles import within
from app.domain.access.session_rules import (
    LOGIN_KEY_LIFE,
    LOGIN_LIFE,
    LOGIN_TRIES_MAX,
    code_of,
    read_code,
)
from app.domain.audit.audit_action import AuditAction, SubjectKind
from app.domain.audit.audit_entry import Subject
from app.domain.deployment.credentials import digest
from app.domain.units.errors import CommandRefused, InvalidValue, NotFound
from app.orchestration.access.key_projects import projects_of_own_key
from app.orchestration.access.manage_keys import IssuedKey, key_of_newcomer, require_room
from app.orchestration.access.manage_members import person_named
from app.orchestration.audit.record_action import record_action
from app.ports.entropy import Entropy
from app.storage.access.invitation_repository import LoginRow
from app.storage.access.key_repository import KeyOwner
from app.storage.unit_of_work import UnitOfWork

_NO_NAME: Final = re.compile(r"[^a-z0-9]+")
_NAME_MAX: Final = 40


class LoginProblem(Enum):
    """Why no key was given."""

    UNKNOWN = auto()
    """Not confirmed, used, or over, or what confirmed it has ended."""
    WRONG_CODE = auto()
    ENDED = auto()
    """Too many wrong codes."""


@dataclass(frozen=True)
class LoginAnswer:
    """A key, or why there is none. Wrong codes are counted: commit in both cases."""

    key: IssuedKey | None = None
    problem: LoginProblem | None = None


def confirm_login(
    uow: UnitOfWork,
    entropy: Entropy,
    principal: Principal,
    session_id_hash: str,
    challenge: str,
    machine: str,
) -> str:
    """Let the command with this challenge have a key of the person's. Returns the code for it.

    session_id_hash: of the browser; the end of its session or key, or of the person's memberships,
    is the end of the login. The key lives for 30 days, and no longer than the one that the person
    signed in with. Raises InvalidValue for what is no challenge, CommandRefused for a service key
    and for a challenge that was confirmed before.
    """
    require_challenge(challenge)
    if principal.person is None:
        raise CommandRefused(
            f"You are signed in with the service key {principal.key_name!r}, which is no person's. "
            "Give that key to `lowtide login --with-key`, or sign in as yourself."
        )
    own = None if principal.key_id is None else uow.keys.expiry_of(principal.key_id)
    key_expires_at = uow.now + LOGIN_KEY_LIFE
    code = code_of(entropy.new_token())
    row = LoginRow(
        challenge=challenge,
        code_hash=_code_hash(challenge, code),
        person_id=principal.person.id,
        project_id=principal.project_id,
        session_id_hash=session_id_hash,
        limit_role=principal.person.limit,
        machine=machine_name(machine),
        tries=0,
        created_at=uow.now,
        expires_at=uow.now + LOGIN_LIFE,
        key_expires_at=key_expires_at if own is None else min(own, key_expires_at),
    )
    if not uow.invitations.add_login(row):
        raise CommandRefused(
            "This login was confirmed before. Run `lowtide login` again for another one."
        )
    record_action(
        uow,
        entropy,
        principal,
        AuditAction.LOGIN_CONFIRM,
        _subject(row),
        after={"machine": row.machine, "limit": row.limit_role, "expires_at": row.key_expires_at},
    )
    return code


def redeem_login(
    uow: UnitOfWork,
    entropy: Entropy,
    verifier: str,
    code: str,
    origin: Origin | None = None,
    *,
    projects: Sequence[str] | None = None,
) -> LoginAnswer:
    """The key for who has the verifier and the code: once, within ten minutes and five tries.

    The last wrong code leaves a row in the audit: of the person whose login it was, from where the
    code came. origin: of the request. projects: names of the only ones that the key opens; None for
    all that the confirming session does. It can only be less than what the person has confirmed, so
    the page is not asked for it. Raises CommandRefused for a person that has too many keys, and for
    projects that its key cannot name; the code stays good.
    """
    challenge = challenge_of(verifier)
    row = uow.invitations.login(challenge)
    if row is None or row.used_at is not None or row.expires_at <= uow.now:
        return LoginAnswer(problem=LoginProblem.UNKNOWN)
    confirming = uow.people.owner_of_session(row.session_id_hash, uow.now)
    if confirming is None:
        return LoginAnswer(problem=LoginProblem.UNKNOWN)
    if row.tries >= LOGIN_TRIES_MAX:
        return LoginAnswer(problem=LoginProblem.ENDED)
    if not hmac.compare_digest(_code_hash(challenge, read_code(code)), row.code_hash):
        return LoginAnswer(problem=_count_wrong_code(uow, entropy, row, origin))
    require_room(uow, KeyOwner(row.project_id, row.person_id))
    uow.invitations.change_login(challenge, used_at=uow.now)
    where = _NO_NAME.sub("-", row.machine.lower()).strip("-")[:_NAME_MAX].strip("-") or "machine"
    newcomer = replace(_owner(uow, row, origin), projects=confirming.projects)
    if projects is not None:
        newcomer = _limited(uow, newcomer, confirming, projects)
    return LoginAnswer(key_of_newcomer(uow, entropy, newcomer, row.key_expires_at, where))


def _count_wrong_code(
    uow: UnitOfWork, entropy: Entropy, row: LoginRow, origin: Origin | None
) -> LoginProblem:
    tries = row.tries + 1
    uow.invitations.change_login(row.challenge, tries=tries)
    if tries < LOGIN_TRIES_MAX:
        return LoginProblem.WRONG_CODE
    owner, action = _owner(uow, row, origin), AuditAction.LOGIN_FAIL
    record_action(uow, entropy, owner, action, _subject(row), after={"wrong_codes": tries})
    return LoginProblem.ENDED


def _owner(uow: UnitOfWork, row: LoginRow, origin: Origin | None) -> Principal:
    """The person whose login it is, with what its key would let it do."""
    person = person_named(uow, str(row.person_id))
    limited = Person(person.id, person.name, None, row.limit_role)
    return Principal(None, "", row.project_id, "", row.limit_role, origin=origin, person=limited)


def _limited(
    uow: UnitOfWork, newcomer: Principal, confirming: Principal, projects: Sequence[str]
) -> Principal:
    """The newcomer whose key opens these projects alone, and works in the first of them."""
    person = newcomer.person
    assert person is not None
    try:
        project_ids = projects_of_own_key(uow, confirming, person, projects)
    except (InvalidValue, NotFound) as error:
        # Refused as a whole: neither is the login unknown, nor the code wrong.
        raise CommandRefused(error.message) from error
    return replace(
        newcomer,
        project_id=project_ids[0],
        projects=frozenset(project_ids),
        person=replace(person, limit=within(person.limit, MOST_IN_PROJECTS)),
    )


def _subject(row: LoginRow) -> Subject:
    return Subject(SubjectKind.LOGIN, row.challenge, row.machine, row.project_id)


def _code_hash(challenge: str, code: str) -> str:
    return digest(f"{challenge}:{code}")
