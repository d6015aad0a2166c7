"""Invitations: make one, take it back, accept it. Its token is returned once and never stored.

Lives here: the verbs and their rules, each in the caller's transaction. Not here: the page on
which it is accepted (`app.web.access`), or members that there are (`manage_members`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from app.domain.access.key_rules import require_grantable
from app.domain.access.may import DEPLOYMENT, require
from app.domain.access.person_rules import (
    INVITATION_LIFE,
    OPEN_INVITATIONS_MAX,
    read_email,
    read_name,
)
from app.domain.access.principal import Origin, Person, Principal
from app.domain.access.roles import GRANTABLE_BY, Action, Role
from app.domain.audit.audit_action import AuditAction, SubjectKind
from app.domain.audit.audit_entry import LOOKED_UP, Subject
from app.domain.deployment.credentials import digest
from app.domain.units.errors import CommandRefused, Forbidden, NotFound
from app.domain.units.instants import format_instant
from app.orchestration.access.manage_keys import IssuedKey, end_before, key_of_newcomer
from app.orchestration.access.manage_members import person_named
from app.orchestration.audit.record_action import record_action
from app.ports.entropy import Entropy
from app.storage.access.invitation_repository import InvitationRow
from app.storage.access.people_repository import PersonRow
from app.storage.unit_of_work import UnitOfWork

_NOT_GOOD: Final = (
    "This invitation is unknown, was used or taken back, or is older than 72 hours: ask for "
    "another one."
)


@dataclass(frozen=True)
class IssuedInvitation:
    """An invitation with its token, which is known here alone."""

    row: InvitationRow
    token: str


@dataclass(frozen=True)
class Accepted:
    """Who accepted, and what it got. newcomer: the person in the project. key: None for a person
    who had signed in already.
    """

    person: PersonRow
    newcomer: Principal
    key: IssuedKey | None


def invite(
    uow: UnitOfWork,
    entropy: Entropy,
    principal: Principal,
    role: Role,
    email: str | None = None,
) -> IssuedInvitation:
    """An invitation to the principal's project, for 72 hours and one person.

    Raises Forbidden for a role that the principal does not manage, and for a key with an end, which
    people would outlive; InvalidValue for what is no address.
    """
    require_grantable(principal.role, role)
    _require_no_end(uow, principal)
    return _issue(uow, entropy, principal, role, read_email(email), None)


def invite_again(
    uow: UnitOfWork,
    entropy: Entropy,
    principal: Principal,
    named: str,
    role: Role = Role.SUBMITTER,
) -> IssuedInvitation:
    """Another key and a session for a person whose keys are lost. role: what it gets in the
    principal's project if it is a member of none any more; else it gets no new one.

    For admins alone, as it opens all that the person may. Raises NotFound, and Forbidden also for a
    key with an end, which would give itself one without.
    """
    require(principal, Action.OPERATE_DEPLOYMENT, DEPLOYMENT)
    _require_no_end(uow, principal)
    person = person_named(uow, named)
    return _issue(uow, entropy, principal, role, person.email, person.id)


def invite_first_admin(uow: UnitOfWork, entropy: Entropy, first: Principal) -> str:
    """The token of an invitation that makes the first admin of a new deployment. first: nobody."""
    return _issue(uow, entropy, first, Role.ADMIN, None, None).token


def revoke_invitation(
    uow: UnitOfWork, entropy: Entropy, principal: Principal, invitation_id: UUID
) -> InvitationRow:
    """Let nobody accept it any more; again changes nothing.

    Raises NotFound, Forbidden for a role that the principal does not manage, and CommandRefused for
    one that was accepted.
    """
    row = uow.invitations.of_project(principal.project_id, invitation_id)
    if row is None:
        raise NotFound(f"The project {principal.project_name!r} has no invitation {invitation_id}.")
    if row.person_id is not None:
        # As for making it: whose keys are lost waits for it.
        require(principal, Action.OPERATE_DEPLOYMENT, DEPLOYMENT)
    require_grantable(principal.role, row.role)
    if row.used_at is not None:
        raise CommandRefused("This invitation was accepted; remove the member instead.")
    if row.revoked_at is not None:
        return row
    uow.invitations.revoke(row.id, uow.now)
    revoked = replace(row, revoked_at=uow.now)
    action, before, after = AuditAction.INVITATION_REVOKE, _facts(row), _facts(revoked)
    record_action(uow, entropy, principal, action, _subject(row), before, after)
    return revoked


def accept(
    uow: UnitOfWork,
    entropy: Entropy,
    token: str,
    name: str,
    visitor: Person | None = None,
    origin: Origin | None = None,
    visitor_key_id: UUID | None = None,
) -> Accepted:
    """Become a member, once. visitor: the person that has signed in already; `name` is then unread.
    origin: of the request. visitor_key_id: of the key that the visitor signed in with.

    Raises NotFound for a token that is not good, InvalidValue for a name that is none or another's,
    CommandRefused where the visitor cannot accept it.
    """
    row = uow.invitations.of_token(digest(token))
    if row is None or row.used_at is not None or row.revoked_at is not None:
        raise NotFound(_NOT_GOOD)
    if row.expires_at <= uow.now or not _inviter_still_may(uow, row):
        raise NotFound(_NOT_GOOD)
    person = _who(uow, entropy, row, name, visitor)
    if person.disabled_at is not None:
        raise CommandRefused(f"{person.name} is disabled; ask an admin.")
    if row.person_id is None or not uow.people.roles_of(person.id):
        _join(uow, row, person)
    uow.invitations.use(row.id, uow.now, person.id)
    person_of = Person(person.id, person.name, None, Role.ADMIN)
    key_id = visitor_key_id if visitor is not None and visitor.id == person.id else None
    newcomer = Principal(key_id, "", row.project_id, "", row.role, origin=origin, person=person_of)
    used = replace(row, used_at=uow.now)
    action, before, after = AuditAction.INVITATION_ACCEPT, _facts(row), _facts(used)
    record_action(uow, entropy, newcomer, action, _subject(row), before, after)
    if visitor is not None and row.person_id is None:
        return Accepted(person, newcomer, None)
    return Accepted(person, newcomer, key_of_newcomer(uow, entropy, newcomer))


def _issue(
    uow: UnitOfWork,
    entropy: Entropy,
    principal: Principal,
    role: Role,
    email: str | None,
    person_id: UUID | None,
) -> IssuedInvitation:
    if uow.invitations.count_open(principal.project_id, uow.now) >= OPEN_INVITATIONS_MAX:
        raise CommandRefused(
            f"The project {principal.project_name!r} has {OPEN_INVITATIONS_MAX} invitations that "
            "nobody has accepted. Take some back (`lowtide member uninvite`)."
        )
    token = entropy.new_token()
    by_key = principal.key_id if principal.person is None else None
    row = InvitationRow(
        id=entropy.new_id(),
        project_id=principal.project_id,
        person_id=person_id,
        role=role,
        email=email,
        invited_by_key_id=by_key,
        invited_by_person_id=principal.person_id,
        created_by=str(principal.actor),
        created_at=uow.now,
        expires_at=uow.now + INVITATION_LIFE,
    )
    uow.invitations.add(row, digest(token))
    action = AuditAction.INVITATION_CREATE
    record_action(uow, entropy, principal, action, _subject(row), after=_facts(row))
    return IssuedInvitation(row, token)


def _require_no_end(uow: UnitOfWork, principal: Principal) -> None:
    """Raises Forbidden for a key with an end: who joins gets a key without one."""
    end = end_before(uow, principal, None)
    if end is not None:
        raise Forbidden(
            f"The key {principal.key_name!r} ends at {format_instant(end)}, and people would "
            "outlast it: invite with a key that has no end, as that of an invitation or admin.key."
        )


def _inviter_still_may(uow: UnitOfWork, row: InvitationRow) -> bool:
    """Whether who invited has not been removed, lowered or revoked since."""
    if row.invited_by_key_id is None and row.invited_by_person_id is None:
        return True
    role = uow.people.role_of_inviter(row, uow.now)
    if role is None:
        return False
    return role is Role.ADMIN if row.person_id else row.role in GRANTABLE_BY.get(role, ())


def _who(
    uow: UnitOfWork, entropy: Entropy, row: InvitationRow, name: str, visitor: Person | None
) -> PersonRow:
    """The person that accepts: the one it is for, the visitor, or a new one."""
    if row.person_id is not None:
        return person_named(uow, str(row.person_id))
    if visitor is not None:
        return person_named(uow, str(visitor.id))
    written = read_name(name)
    person = PersonRow(entropy.new_id(), written, row.email, uow.now, None)
    if uow.keys.is_name_of_service_key(written) or not uow.people.add_person(person):
        raise CommandRefused(
            f"The name {written!r} is taken, and histories name people. Choose another one; if it "
            "is you, sign in first and open the link again."
        )
    return person


def _join(uow: UnitOfWork, row: InvitationRow, person: PersonRow) -> None:
    if not uow.people.add_member(person.id, row.project_id, row.role, uow.now, row.created_by):
        raise CommandRefused(
            f"{person.name} is a member of this project already; its maintainers can change the "
            "role (`lowtide member role`)."
        )


def _subject(row: InvitationRow) -> Subject:
    return Subject(SubjectKind.INVITATION, str(row.id), LOOKED_UP, row.project_id)


def _facts(row: InvitationRow) -> dict[str, object]:
    return {
        "role": row.role,
        "person_id": None if row.person_id is None else str(row.person_id),
        "expires_at": row.expires_at,
        "used_at": row.used_at,
        "revoked_at": row.revoked_at,
    }
